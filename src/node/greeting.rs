//! The client's questions to a node when it connects, and the node's answers.
//!
//! # Contract
//!
//! - The client greets in one write: HELLO with login and name, SELECT if a database is configured,
//!   and INFO. INFO goes section by section, because servers before 7.0 take one section per
//!   command.
//! - A second write only if the answers call for it. It checks that a user who releases by scripts
//!   may run one. It asks a master that was once a replica since when it has been a master. It
//!   asks a master with replicas how many of them its writes need.
//! - The client greets a server without HELLO or RESP3 a second time, in RESP2.
//! - A successful HELLO does not mean that the node can vote: servers answer it while LOADING.

use std::time::Duration;

use bytes::BytesMut;

use crate::command::{
    Answer, MARKER_PREFIX, ReleaseStep, Server, ServerKind, append_proof, append_pttl, classify,
};
use crate::error::Cause;
use crate::key::Key;
use crate::node::channel::ChannelName;
use crate::node::pending::GreetingPart;
use crate::resp::Reply;
use crate::resp::encode::append_command;
use crate::rules;

/// The role of a node that can serve locks.
pub(crate) const MASTER: &str = "master";

/// Login and client name, from the configuration.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) client_name: Option<String>,
    pub(crate) database: u32,
    /// This client's channel, if it uses one.
    pub(crate) channel: Option<ChannelName>,
}

/// The node's answers about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Whether the node speaks RESP3 on this connection.
    pub(crate) resp3: bool,
    pub(crate) kind: Option<ServerKind>,
    pub(crate) version: String,
    pub(crate) run_id: Option<String>,
    pub(crate) replid: Option<String>,
    /// `master_replid2` is set: the node may have been a replica a moment ago.
    pub(crate) was_replica: bool,
    /// How many replicas are connected to the node.
    pub(crate) replicas: Option<u64>,
    /// The node has had replicas, or a master: it keeps a backlog, by default for an hour after the
    /// last replica left.
    pub(crate) has_backlog: bool,
    /// The node's writes need replicas: only such a node reports how many replicas are good.
    pub(crate) has_floor: bool,
    /// How many replicas its writes need, if the user may read that setting.
    pub(crate) floor: Option<Floor>,
    /// For how long the node has been a master, by the marker on it.
    pub(crate) met_for: Option<Duration>,
    pub(crate) uptime_s: Option<u64>,
    /// The node's wall clock, in microseconds since 1970.
    pub(crate) time_us: Option<u64>,
    pub(crate) role: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) maxmemory_policy: Option<String>,
    pub(crate) loading: bool,
    pub(crate) aof: Option<bool>,
    pub(crate) info_denied: bool,
    /// The process id: Dragonfly has no `run_id`.
    pub(crate) process_id: Option<String>,
    /// The first cause against the node in its answers.
    pub(crate) fault: Option<Cause>,
    /// The node did not select the database: commands for keys would reach other keys.
    pub(crate) is_elsewhere: bool,
    /// The node does not know HELLO or RESP3.
    pub(crate) hello_refused: bool,
    /// This greeting is not the first on its connection, so the process is the same.
    pub(crate) is_again: bool,
    /// The greeting holds a password.
    pub(crate) logs_in: bool,
    /// The second write of the greeting has begun.
    pub(crate) is_asked_more: bool,
    /// The user may not release by the step that the client tried last.
    pub(crate) is_step_refused: bool,
}

/// The replicas that a node's writes need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    /// `min-replicas-to-write`.
    pub(crate) replicas: u64,
    /// `min-replicas-max-lag`, in seconds.
    pub(crate) lag_s: u64,
}

/// The TTL of a marker. All clients compute ages from it, so all must write the same TTL.
const MARK_MS: u64 = 30 * 24 * 3600 * 1000;

/// The key of the marker of a master with this replication id. A promoted replica has another id,
/// and FLUSHALL deletes the marker together with the locks.
fn mark_key(replid: &str) -> Key {
    Key::from_slice(format!("{MARKER_PREFIX}{replid}").as_bytes())
}

/// Sets the marker of the master, unless it is set, and asks for its age.
pub(crate) fn append_mark(out: &mut BytesMut, replid: &str, parts: &mut Vec<GreetingPart>) {
    let (key, lasts) = (mark_key(replid), MARK_MS.to_string());
    append_command(out, &[b"SET", &key, b"1", b"NX", b"PX", lasts.as_bytes()]);
    append_pttl(out, &key);
    parts.extend_from_slice(&[GreetingPart::Mark, GreetingPart::MarkAge]);
}

/// Asks whether the node is the same master still.
pub(super) fn append_look(out: &mut BytesMut) {
    append_command(out, &[b"INFO", b"replication"]);
}

/// Asks how many replicas the node's writes need.
pub(crate) fn append_floor(out: &mut BytesMut, parts: &mut Vec<GreetingPart>) {
    append_command(out, &[b"CONFIG", b"GET", b"min-replicas-*"]);
    parts.push(GreetingPart::Floor);
}

/// Asks whether the user may release by `step`.
pub(crate) fn append_prove(out: &mut BytesMut, step: ReleaseStep, parts: &mut Vec<GreetingPart>) {
    append_proof(out, step);
    parts.push(GreetingPart::Prove);
}

/// Writes the commands of a greeting, and lists them in `parts` in the same order.
pub(crate) fn append(
    out: &mut BytesMut,
    login: &Login,
    resp3: bool,
    parts: &mut Vec<GreetingPart>,
) {
    let password = login.password.as_deref().map(str::as_bytes);
    let username = login.username.as_deref().map(str::as_bytes);
    let name = login.client_name.as_deref().map(str::as_bytes);
    if resp3 {
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = password {
            hello.extend_from_slice(&[b"AUTH", username.unwrap_or(b"default"), password]);
        }
        if let Some(name) = name {
            hello.extend_from_slice(&[b"SETNAME", name]);
        }
        append_command(out, &hello);
        parts.push(GreetingPart::Hello);
    } else {
        match (username, password) {
            (Some(username), Some(password)) => append_command(out, &[b"AUTH", username, password]),
            (None, Some(password)) => append_command(out, &[b"AUTH", password]),
            (_, None) => {}
        }
        if password.is_some() {
            parts.push(GreetingPart::Auth);
        }
        if let Some(name) = name {
            append_command(out, &[b"CLIENT", b"SETNAME", name]);
            parts.push(GreetingPart::SetName);
        }
    }
    if login.database != 0 {
        append_command(out, &[b"SELECT", login.database.to_string().as_bytes()]);
        parts.push(GreetingPart::Select);
    }
    for (part, section) in [
        (GreetingPart::InfoServer, &b"server"[..]),
        (GreetingPart::InfoMemory, b"memory"),
        (GreetingPart::InfoPersistence, b"persistence"),
        (GreetingPart::InfoReplication, b"replication"),
    ] {
        append_command(out, &[b"INFO", section]);
        parts.push(part);
    }
}

impl Facts {
    /// Takes one answer of the greeting.
    pub(crate) fn note(&mut self, part: GreetingPart, reply: &Reply<'_>) {
        match part {
            GreetingPart::Hello => self.note_hello(reply),
            GreetingPart::Auth | GreetingPart::Select => {
                let (answer, is_login) = (classify(reply), part == GreetingPart::Auth);
                self.is_elsewhere |= !is_login && answer != Answer::Ok;
                if let Answer::Refused(cause @ (Cause::Loading | Cause::Busy | Cause::Protected)) =
                    answer
                {
                    self.fault(cause);
                } else if answer != Answer::Ok {
                    self.fault(if is_login { Cause::Credentials } else { Cause::Database });
                }
            }
            // A node that refuses the client name can still lock.
            GreetingPart::SetName => {}
            GreetingPart::Prove => {
                self.is_step_refused = matches!(
                    self.note_more(reply),
                    Answer::Refused(Cause::NoPermission | Cause::Unsupported)
                );
            }
            // If the user may not write the marker, the master has none.
            GreetingPart::Mark => {
                self.note_more(reply);
            }
            GreetingPart::MarkAge => {
                self.note_more(reply);
                if let Reply::Integer(left) = reply {
                    let left = u64::try_from(*left).ok().filter(|left| *left <= MARK_MS);
                    self.met_for = left.map(|left| Duration::from_millis(MARK_MS - left));
                }
            }
            // Many users may not read settings.
            GreetingPart::Floor => {
                self.note_more(reply);
                self.floor = floor(reply);
            }
            GreetingPart::InfoServer
            | GreetingPart::InfoMemory
            | GreetingPart::InfoPersistence
            | GreetingPart::InfoReplication => self.note_info(reply),
        }
    }

    /// An answer to the second write: the node may have ceased to be a master since it said that it
    /// was one.
    fn note_more(&mut self, reply: &Reply<'_>) -> Answer {
        let answer = classify(reply);
        if let Answer::Refused(
            cause @ (Cause::Replica | Cause::MasterDown | Cause::Loading | Cause::Busy),
        ) = answer
            && rules::is_greeting_refused(true)
        {
            self.fault(cause);
        }
        answer
    }

    /// Whether this answer to INFO comes from the master of the greeting, which has not been a
    /// replica since.
    pub(super) fn is_same_master(&self, reply: &Reply<'_>) -> bool {
        let mut now = Self::default();
        now.note_info(reply);
        now.role.as_deref() == Some(MASTER) && now.replid == self.replid
    }

    fn note_hello(&mut self, reply: &Reply<'_>) {
        let (Reply::Map(items) | Reply::Array(items)) = reply else {
            let answer = classify(reply);
            // Valkey 9 hides all commands from a client that is not logged in. It answers an
            // unknown HELLO by NOAUTH, and a HELLO with a wrong login by WRONGPASS. The answer to
            // AUTH itself decides.
            let is_hidden = self.logs_in && reply.error_prefix() == Some(b"NOAUTH");
            if is_hidden || answer == Answer::Refused(Cause::Unsupported) {
                self.hello_refused = true;
            } else {
                self.fault(refused_for(answer));
            }
            return;
        };
        let mut items = items.clone();
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            let text = || value.text().map(|text| plain(&String::from_utf8_lossy(text)));
            match name.text() {
                Some(b"proto") => self.resp3 = matches!(value, Reply::Integer(3)),
                Some(b"server") => {
                    self.kind = Some(match value.text() {
                        Some(b"redis") => ServerKind::Redis,
                        Some(b"valkey") => ServerKind::Valkey,
                        _ => ServerKind::Other,
                    });
                }
                Some(b"version") => self.version = text().unwrap_or_default(),
                Some(b"role") => self.note_role(text()),
                Some(b"mode") => self.mode = text(),
                _ => {}
            }
        }
    }

    fn note_info(&mut self, reply: &Reply<'_>) {
        let Some(text) = reply.text() else {
            let answer = classify(reply);
            if matches!(answer, Answer::Refused(Cause::NoPermission | Cause::Unsupported)) {
                self.info_denied = true;
            } else {
                self.fault(refused_for(answer));
            }
            return;
        };
        for (name, value) in info_fields(text) {
            self.note_field(name, value);
        }
    }

    fn note_field(&mut self, name: &[u8], value: &str) {
        let text = || Some(plain(value));
        match name {
            b"run_id" => self.run_id = text(),
            b"process_id" => self.process_id = text(),
            b"server_time_usec" => self.time_us = value.parse().ok(),
            b"uptime_in_seconds" => self.uptime_s = value.parse().ok(),
            b"redis_mode" | b"server_mode" => self.mode = text(),
            b"redis_version" if self.version.is_empty() => {
                self.version = plain(value);
                self.kind.get_or_insert(ServerKind::Redis);
            }
            // Valkey's redis_version is a constant for old clients, and so is Dragonfly's.
            b"valkey_version" => {
                self.version = plain(value);
                self.kind = Some(ServerKind::Valkey);
            }
            b"dragonfly_version" => {
                self.version = plain(value.trim_start_matches("df-").trim_start_matches('v'));
                self.kind = Some(ServerKind::Dragonfly);
            }
            b"maxmemory_policy" => self.maxmemory_policy = text(),
            b"loading" | b"async_loading" => self.loading |= value == "1",
            b"aof_enabled" => self.aof = Some(value == "1"),
            b"role" => self.note_role(text()),
            b"connected_slaves" => self.replicas = value.parse().ok(),
            b"min_slaves_good_slaves" => self.has_floor = true,
            b"repl_backlog_active" => self.has_backlog = value == "1",
            b"master_replid" => self.replid = text(),
            b"master_replid2" => self.was_replica = value.bytes().any(|byte| byte != b'0'),
            _ => {}
        }
    }

    /// A node that was a replica when the greeting began has lost its keys: no later answer of the
    /// same greeting makes it a master.
    fn note_role(&mut self, role: Option<String>) {
        if self.role.as_deref().is_none_or(|role| role == MASTER) {
            self.role = role;
        }
    }

    fn fault(&mut self, cause: Cause) {
        self.fault.get_or_insert(cause);
    }

    /// Whether the node has replicas, or had some lately, or was one: another server may become the
    /// master in its place.
    pub(crate) fn fails_over(&self) -> bool {
        self.replicas.is_some_and(|replicas| replicas > 0) || self.has_backlog
    }

    /// The identity of this process, as far as the node tells it.
    pub(crate) fn identity(&self) -> Option<String> {
        self.run_id.clone().or_else(|| {
            let process = self.process_id.as_ref()?;
            Some(format!("{process}:{}", self.replid.as_ref()?))
        })
    }

    /// The kind and the version, as numbers.
    pub(crate) fn server(&self) -> Server {
        let mut numbers = self.version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Server { kind: self.kind.unwrap_or(ServerKind::Other), version }
    }
}

/// The settings in the answer to CONFIG GET; `None` if one is not there.
fn floor(reply: &Reply<'_>) -> Option<Floor> {
    let (Reply::Map(items) | Reply::Array(items)) = reply else { return None };
    let (mut items, mut replicas, mut lag_s) = (items.clone(), None, None);
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        let number = || std::str::from_utf8(value.text()?).ok()?.parse::<u64>().ok();
        match name.text() {
            Some(b"min-replicas-to-write") => replicas = number(),
            Some(b"min-replicas-max-lag") => lag_s = number(),
            _ => {}
        }
    }
    Some(Floor { replicas: replicas?, lag_s: lag_s? })
}

/// A server's text as a word that is safe to show: no terminal, log or label can misread it.
fn plain(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || ".-_:+".contains(*c);
    text.chars().filter(is_plain).take(TEXT_MAX).collect()
}

/// The greatest length of a server's text that the client keeps: longer than any identity.
const TEXT_MAX: usize = 64;

/// The cause for an answer that does not tell the facts.
const fn refused_for(answer: Answer) -> Cause {
    if let Answer::Refused(cause) = answer { cause } else { Cause::Protocol }
}

/// The `name:value` lines of an INFO answer.
pub(crate) fn info_fields(text: &[u8]) -> impl Iterator<Item = (&[u8], &str)> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = line.split_at_checked(colon)?;
        Some((name, std::str::from_utf8(value.get(1..)?).ok()?))
    })
}
