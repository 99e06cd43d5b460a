//! The way from a request to the function that runs it: every check that may refuse the request, in
//! the order of real servers.
//!
//! Layer: sans-IO.

use super::call::Call;
use super::flavor::Flavor;
use super::refusals::{MASTERDOWN, NO_REPLICAS, READONLY, misconf};
use super::reply::Reply;
use super::server::{Progress, Server};
use super::session::Session;
use super::table::{self, Command, Found};
use crate::Instant;
use crate::request::{Args, Broken, Parsed, Rules};

impl Server {
    /// Takes `bytes` of a session, runs each complete request, and appends the replies to `out`, at
    /// most about a mebibyte per call.
    pub fn execute(
        &mut self,
        session: &mut Session,
        bytes: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Progress {
        let now_ms = self.wall_ms(now);
        session.parser.feed(bytes);
        let mut parser = std::mem::take(&mut session.parser);
        let start_len = out.len();
        let progress = loop {
            if session.closing {
                break Progress::Close;
            }
            if out.len() - start_len > OUTPUT_LEN_MAX {
                break Progress::More;
            }
            let rules = Rules {
                authenticated: session.user.is_some(),
                strict_crlf: matches!(self.flavor, Flavor::Valkey91),
            };
            match parser.next(rules) {
                Parsed::Request => self.dispatch(session, parser.args(), now_ms, out),
                Parsed::Partial => break Progress::Idle,
                Parsed::Broken(broken) => {
                    say_broken(broken, out);
                    session.closing = true;
                }
            }
        };
        session.parser = parser;
        progress
    }

    fn dispatch(&mut self, session: &mut Session, args: Args<'_>, now_ms: i64, out: &mut Vec<u8>) {
        self.stats.commands += 1;
        if is_http(args) {
            // Somebody tricked a browser into talking to the server: real servers close without an
            // answer.
            session.closing = true;
            return;
        }
        let found = table::find(args, self.flavor, &self.state.renamed);
        let mut pushes = Vec::new();
        self.run(session, args, &found, now_ms, out, &mut pushes);
        out.append(&mut pushes);
    }

    fn run(
        &mut self,
        session: &mut Session,
        args: Args<'_>,
        found: &Found,
        now_ms: i64,
        out: &mut Vec<u8>,
        pushes: &mut Vec<u8>,
    ) {
        let refusal = self.refusal(session, args, found);
        let command = match (found, refusal) {
            (Found::Command(command), None) => *command,
            (_, Some(text)) => return Reply::new(out, session.resp3).error_bytes(&text),
            (Found::Missing(text), None) => {
                return Reply::new(out, session.resp3).error_bytes(text);
            }
        };
        (command.run)(&mut Call { server: self, session, args, out, pushes, now_ms });
    }

    /// Why the server takes no writes now, from clients or from their scripts.
    pub(super) fn write_refusal(&self) -> Option<String> {
        let state = &self.state;
        if state.misconf {
            Some(misconf(self.flavor))
        } else if state.replica {
            (!state.writable).then(|| READONLY.to_owned())
        } else {
            state.no_replicas.then(|| NO_REPLICAS.to_owned())
        }
    }

    /// Why the request may not run: the text without its minus sign.
    fn refusal(&self, session: &Session, args: Args<'_>, found: &Found) -> Option<Vec<u8>> {
        let authenticated = session.user.is_some();
        if !authenticated && self.flavor == Flavor::Valkey91 && !found.has(table::NO_AUTH) {
            return Some(b"NOAUTH Authentication required.".to_vec());
        }
        let command = match found {
            Found::Command(command) => command,
            Found::Missing(text) => return Some(text.clone()),
        };
        if !command.takes(args.len()) {
            let text = format!("ERR wrong number of arguments for '{}' command", command.name);
            return Some(text.into_bytes());
        }
        if !authenticated && !command.has(table::NO_AUTH) {
            return Some(b"NOAUTH Authentication required.".to_vec());
        }
        let text = self.denied(session, command);
        text.or_else(|| self.unfit(session, command)).map(String::into_bytes)
    }

    fn denied(&self, session: &Session, command: &Command) -> Option<String> {
        let is_denied = self.state.denied.iter().any(|denied| denied == command.name);
        if !is_denied || command.has(table::NO_AUTH) {
            return None;
        }
        let name = command.name;
        Some(if self.flavor == Flavor::Redis70 {
            format!("NOPERM this user has no permissions to run the '{name}' command")
        } else {
            let user = self.user_name(session);
            format!("NOPERM User {user} has no permissions to run the '{name}' command")
        })
    }

    /// Why the server's condition forbids the command.
    fn unfit(&self, session: &Session, command: &Command) -> Option<String> {
        let has = |flag| command.has(flag);
        if self.state.oom && !self.state.busy && has(table::DENY_OOM) {
            return Some("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
        }
        if self.state.misconf && command.name == "ping" {
            return Some(misconf(self.flavor));
        }
        if let Some(refusal) = self.write_refusal().filter(|_| has(table::WRITE)) {
            return Some(refusal);
        }
        if !session.resp3 && !session.channels.is_empty() && !command.has(table::SUBSCRIBED) {
            return Some(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                command.name
            ));
        }
        if self.state.master_down && !command.has(table::STALE) {
            return Some(MASTERDOWN.to_owned());
        }
        if self.state.loading && !command.has(table::LOADING) {
            return Some(format!(
                "LOADING {} is loading the dataset in memory",
                self.flavor.title()
            ));
        }
        if self.state.busy && !command.runs_beside_script(self.flavor) {
            return Some(format!(
                "BUSY {} is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                self.flavor.title()
            ));
        }
        None
    }
}

fn is_http(args: Args<'_>) -> bool {
    let name = args.at(0);
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn say_broken(broken: Broken, out: &mut Vec<u8>) {
    out.extend_from_slice(b"-ERR Protocol error: ");
    match broken {
        Broken::Text(text) => out.extend_from_slice(text.as_bytes()),
        Broken::NotBulk(byte) => {
            out.extend_from_slice(b"expected '$', got '");
            out.push(if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
            out.push(b'\'');
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Once the replies of one call exceed this length, further requests wait until these replies are
/// written.
const OUTPUT_LEN_MAX: usize = 1 << 20;
