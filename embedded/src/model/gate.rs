//! From a request to the function that runs it: every check that may refuse it, in the order of
//! real servers.
//!
//! Layer: sans-IO. Called by [`Server::execute`] only.

use super::flavor::Flavor;
use super::reply::Reply;
use super::server::Server;
use super::session::Session;
use super::table::{self, Command, Found};
use crate::request::Args;

/// One command under way: what it needs to run and to answer.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) session: &'a mut Session,
    pub(crate) args: Args<'a>,
    pub(crate) out: &'a mut Vec<u8>,
    /// Pushes to this session, which follow the answer.
    pub(crate) pushes: &'a mut Vec<u8>,
    /// The server's wall clock.
    pub(crate) now_ms: i64,
}

impl Call<'_> {
    /// Runs a command that has passed the checks.
    pub(crate) fn run(&mut self, command: &Command) {
        (command.run)(self);
    }

    /// Where the answer goes, in the protocol that the session speaks now.
    pub(crate) fn reply(&mut self) -> Reply<'_> {
        Reply::new(self.out, self.session.resp3)
    }
}

impl Server {
    pub(crate) fn dispatch(
        &mut self,
        session: &mut Session,
        args: Args<'_>,
        now_ms: i64,
        out: &mut Vec<u8>,
    ) {
        self.stats.commands += 1;
        if is_http(args) {
            // A browser was tricked into talking to the server: real servers close without an
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
        Call { server: self, session, args, out, pushes, now_ms }.run(command);
    }

    /// Why the request may not run; the text without its minus sign.
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
        if self.state.misconf && (has(table::WRITE) || command.name == "ping") {
            return Some(self.misconf());
        }
        if self.state.no_replicas && !self.state.replica && has(table::WRITE) {
            return Some(NO_REPLICAS.to_owned());
        }
        if self.state.replica && !self.state.writable && has(table::WRITE) {
            return Some(READONLY.to_owned());
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

    pub(crate) fn misconf(&self) -> String {
        let title = self.flavor.title();
        format!(
            "MISCONF {title} is configured to save RDB snapshots, but it's currently unable to \
             persist to disk. Commands that may modify the data set are disabled, because this \
             instance is configured to report errors during writes if RDB snapshotting fails \
             (stop-writes-on-bgsave-error option). Please check the {title} logs for details \
             about the RDB error."
        )
    }
}

fn is_http(args: Args<'_>) -> bool {
    let name = args.at(0);
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

pub(crate) const READONLY: &str = "READONLY You can't write against a read only replica.";
pub(crate) const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
pub(crate) const MASTERDOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
