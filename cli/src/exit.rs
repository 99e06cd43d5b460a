//! The end of a command that could not do its work: an exit code, a kind, and one line for people.

use std::fmt::Display;
use std::io;
use std::process;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redbolt::inspect::{NodeHealth, NodeState};
use redbolt::{
    Ballot, Cause, ConfigError, ConnectError, DetachError, ExtendError, LockError, UnlockError,
    Vote,
};
use serde_json::{Value, json};

use crate::inspect::{NodeKey, Searched};
use crate::output::{note, say, shown, together, typed};
use crate::remedy::fence_remedy;
use crate::signals::{ENDING, Signal, Signals};
use crate::terminal::{clear_line, show_cursor};

/// How long the report of a signal waits for a pipe that takes nothing.
const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) const OVERSOLD: u8 = 1;
/// Locks are safe, and not all nodes vote.
pub(crate) const DEGRADED: u8 = 1;
/// The user said no.
pub(crate) const REFUSED: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const NO_QUORUM: u8 = 69;
pub(crate) const LOST: u8 = 70;
pub(crate) const SYSTEM: u8 = 71;
pub(crate) const TAKEN: u8 = 75;
pub(crate) const NO_PERMISSION: u8 = 77;
pub(crate) const UNSAFE: u8 = 78;
/// The command could not kill a process that runs under a lock. No code of sysexits.h fits.
pub(crate) const NOT_KILLED: u8 = 79;
/// As if SIGPIPE had ended the command: the reader of the output has gone.
const PIPE: u8 = 128 + 13;

/// The kind of a command that a signal ended.
const INTERRUPTED: &str = "interrupted";

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// The `error` field of the JSON.
    pub(crate) kind: &'static str,
    /// One line; empty if there is nothing to say.
    pub(crate) message: String,
    /// Each node's part in it, in the order of the list; empty if no node was asked.
    pub(crate) nodes: Vec<NodeVote>,
}

/// One node's part in a failure.
#[derive(Debug)]
pub(crate) struct NodeVote {
    pub(crate) node: String,
    /// `granted`, `denied`, `failed` or `unknown`.
    pub(crate) vote: &'static str,
    /// A stable name: that of a [`Cause`], or [`GONE`].
    pub(crate) cause: &'static str,
    /// The cause in words for people.
    pub(crate) text: &'static str,
}

impl Failure {
    pub(crate) fn new(code: u8, kind: &'static str, message: impl Into<String>) -> Self {
        Self { code, kind, message: message.into(), nodes: Vec::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", message)
    }

    pub(crate) fn system(message: impl Into<String>) -> Self {
        Self::new(SYSTEM, "system", message)
    }

    /// Ends as this signal would have ended it.
    pub(crate) fn signal(signal: Signal) -> Self {
        let number = u8::try_from(signal as i32).unwrap_or(0);
        Self::new(128 + number, INTERRUPTED, "")
    }

    /// From now on a signal ends the process: the command has nothing to give back. Call it before any
    /// other thread starts.
    pub(crate) fn by_signal(json: bool) -> Result<(), Self> {
        let signals = Signals::watch(&ENDING, || {})?;
        thread::Builder::new().name("end".into()).spawn(move || {
            let Some(signal) = signals.wait(Duration::MAX) else { return };
            let failure = Self::signal(signal);
            let code = failure.code.into();
            show_cursor();
            clear_line();
            // The command may hold stdout while a full pipe takes nothing.
            let (sender, reported) = channel();
            thread::spawn(move || {
                failure.report(json);
                sender.send(())
            });
            // A report that does not come in time is left out.
            let _ = reported.recv_timeout(PATIENCE);
            process::exit(code);
        })?;
        Ok(())
    }

    /// Reports each failure of a command that goes from lock to lock. The highest of their codes is
    /// the code of the command.
    pub(crate) fn of_each(
        results: impl Iterator<Item = Result<(), Self>>,
        json: bool,
    ) -> Result<(), Self> {
        let failures = results.filter_map(Result::err).inspect(|failure| failure.report(json));
        failures.map(|failure| failure.code).max().map_or(Ok(()), |code| Err(Self::code(code)))
    }

    /// Done, for a command that goes on until a signal ends it.
    pub(crate) fn unless_interrupted(self) -> Result<(), Self> {
        if self.kind == INTERRUPTED { Ok(()) } else { Err(self) }
    }

    /// Ends with this code and prints nothing more.
    pub(crate) fn code(code: u8) -> Self {
        Self::new(code, "", "")
    }

    /// Reports why the command failed: one line on stderr, or one JSON object on stdout.
    pub(crate) fn report(&self, json: bool) {
        if self.kind.is_empty() {
            return;
        }
        if json {
            let nodes = self.nodes.iter().map(|NodeVote { node, vote, cause, text }| {
                json!({"node": node, "vote": vote, "cause": cause, "message": text})
            });
            let nodes: Vec<Value> = nodes.collect();
            // Nobody is left to hear that stdout has gone.
            let _ = say(json!({"error": self.kind, "message": self.message, "nodes": nodes}));
        } else if !self.message.is_empty() {
            note(&self.message);
        }
    }

    /// Adds the remedy.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.message.push_str("; ");
        self.message.push_str(hint);
        self
    }

    /// Says how to wait, where the lock is taken.
    pub(crate) fn hint_wait(self) -> Self {
        if self.code == TAKEN { self.hint("--wait 5s waits for it") } else { self }
    }

    /// Names the lock, where there are several.
    pub(crate) fn of(mut self, key: &[u8]) -> Self {
        self.message.insert_str(0, &format!("{}: ", shown(key)));
        self
    }

    /// Adds why nodes did not take part, grouped by cause. Sets the code for missing rights if they
    /// alone left no quorum.
    pub(crate) fn away(mut self, nodes: &[NodeHealth], quorum: u32) -> Self {
        self.leave_out(nodes.iter().map(|node| (&*node.name, vote_of(node))));
        self.code = code_without_quorum(nodes.iter().map(|node| node.cause), quorum);
        self
    }

    /// As [`away`](Self::away), by what nodes said of a key.
    pub(crate) fn unseen(mut self, nodes: &[NodeKey], quorum: u32) -> Self {
        let vote = |node: &NodeKey| node.silence().map_or(Vote::Granted, Vote::Unknown);
        self.leave_out(nodes.iter().map(|node| (&*node.node, vote(node))));
        self.code = code_unseen(nodes, quorum);
        self
    }

    /// As [`away`](Self::away), for nodes that were not searched, with the reason for people.
    pub(crate) fn unsearched(nodes: &[Searched], quorum: u32, message: String) -> Self {
        let code = code_without_quorum(nodes.iter().map(|node| node.cause), quorum);
        let nodes = nodes.iter().map(|node| NodeVote::new(&node.node, searched(node), HELD));
        Self { nodes: nodes.collect(), ..Self::new(code, kind_of(code), message) }
    }

    /// Notes the nodes that did not take part.
    fn leave_out<'a>(&mut self, votes: impl Iterator<Item = (&'a str, Vote)>) {
        let nodes: Vec<_> = votes.map(|(node, vote)| NodeVote::new(node, vote, HELD)).collect();
        self.add_causes(grouped(&nodes));
        self.nodes = nodes.into_iter().filter(|node| !node.is_well()).collect();
    }

    fn add_causes(&mut self, causes: Option<String>) {
        if let Some(causes) = causes {
            self.message.push_str(&format!(" ({causes})"));
        }
    }

    fn no_quorum(what: &str, ballot: &Ballot) -> Self {
        let code = code_of(ballot);
        Self::ballot(code, kind_of(code), what, ballot)
    }

    fn ttl(error: &impl Display, is_too_long: bool) -> Self {
        let failure = Self::usage(error.to_string().replace("max_ttl", "--max-ttl"));
        if !is_too_long {
            return failure;
        }
        failure.hint("--max-ttl raises the limit, and must be the same for all clients")
    }

    fn ballot(code: u8, kind: &'static str, what: &str, ballot: &Ballot) -> Self {
        Self::counted(code, kind, what, "granted", HELD, ballot)
    }

    /// As `ballot`. `did` names the act of the nodes that voted yes, and `denied` why others did
    /// not.
    fn counted(
        code: u8,
        kind: &'static str,
        what: &str,
        did: &str,
        denied: Denied,
        ballot: &Ballot,
    ) -> Self {
        let votes = ballot.votes();
        let nodes: Vec<_> = votes.map(|(name, vote)| NodeVote::new(name, vote, denied)).collect();
        let message = format!(
            "{what}: {} of {} nodes {did}, {}",
            ballot.granted(),
            nodes.len(),
            ballot.needed()
        );
        let mut failure = Self::new(code, kind, message);
        failure.add_causes(grouped(&nodes));
        if let Some(wait) = ballot.quarantine() {
            failure =
                failure.hint(&format!("enough nodes may vote in {:.1} s", wait.as_secs_f64()));
        }
        Self { nodes, ..failure }
    }
}

impl NodeVote {
    /// Whether the node granted, or the others had decided before it could answer.
    fn is_well(&self) -> bool {
        self.vote == "granted" || self.vote == "unknown" && self.cause == Cause::None.name()
    }

    fn new(name: &str, vote: Vote, denied: Denied) -> Self {
        let of = |cause: Cause| (cause.name(), cause.text());
        let (vote, (cause, text)) = match vote {
            Vote::Granted => ("granted", of(Cause::None)),
            Vote::Denied => ("denied", denied),
            Vote::Failed(cause) => ("failed", of(cause)),
            Vote::Unknown(cause) => ("unknown", of(cause)),
            _ => ("unknown", of(Cause::None)),
        };
        Self { node: name.to_owned(), vote, cause, text }
    }
}

/// Why a node said no: a stable name, and words for people.
type Denied = (&'static str, &'static str);

/// Why a node does not grant a lock.
const HELD: Denied = (Cause::Held.name(), Cause::Held.text());

/// Why a node does not extend a lock.
const GONE: Denied = ("gone", "not there with this token");

/// The code of a command that had no quorum, by the cause of each node. Rights are missing if the
/// nodes that refuse the user make a quorum together with the nodes that answer. A node whose
/// answer the client did not wait for counts as a node that answers. So the order of the answers
/// changes nothing.
fn code_without_quorum(causes: impl Iterator<Item = Cause>, quorum: u32) -> u8 {
    let (mut refused, mut others) = (0, 0);
    for cause in causes {
        use Cause::{Credentials, Gated, Held, InfoDenied, KeyDenied};
        use Cause::{NoDialect, NoPermission, NoScripts};
        let refusals = [Credentials, InfoDenied, KeyDenied, NoDialect, NoPermission, NoScripts];
        if refusals.contains(&cause) {
            refused += 1;
        } else if matches!(cause, Cause::None | Held | Gated) {
            others += 1;
        }
    }
    let is_refusal = refused > 0 && refused + others >= quorum;
    if is_refusal { NO_PERMISSION } else { NO_QUORUM }
}

/// The code of a command to which the nodes do not show the holder of a key.
pub(crate) fn code_unseen(nodes: &[NodeKey], quorum: u32) -> u8 {
    code_without_quorum(nodes.iter().map(|node| node.silence().unwrap_or_default()), quorum)
}

fn code_of(ballot: &Ballot) -> u8 {
    let causes = ballot.votes().map(|(_, vote)| match vote {
        Vote::Failed(cause) | Vote::Unknown(cause) => cause,
        Vote::Denied => Cause::Held,
        Vote::Granted | _ => Cause::None,
    });
    code_without_quorum(causes, ballot.quorum())
}

const fn kind_of(code: u8) -> &'static str {
    if code == NO_PERMISSION { "no_permission" } else { "no_quorum" }
}

/// The place to look when nodes are away.
pub(crate) const DOCTOR: &str = "redbolt doctor says what to do";

/// Why nodes were not searched, grouped by cause.
pub(crate) fn not_searched(nodes: &[Searched]) -> Option<String> {
    by_cause(nodes.iter().map(|node| (&*node.node, searched(node))))
}

const fn searched(node: &Searched) -> Vote {
    if let Cause::None = node.cause { Vote::Granted } else { Vote::Unknown(node.cause) }
}

/// Why nodes do not vote, grouped by cause.
pub(crate) fn causes(nodes: &[NodeHealth]) -> Option<String> {
    by_cause(nodes.iter().map(|node| (&*node.name, vote_of(node))))
}

const fn vote_of(node: &NodeHealth) -> Vote {
    match (node.state, node.cause) {
        (NodeState::Admitted, _) => Vote::Granted,
        (_, Cause::None) => Vote::Unknown(Cause::Timeout),
        (_, cause) => Vote::Unknown(cause),
    }
}

fn by_cause<'a>(votes: impl Iterator<Item = (&'a str, Vote)>) -> Option<String> {
    let votes: Vec<_> = votes.map(|(node, vote)| NodeVote::new(node, vote, HELD)).collect();
    grouped(&votes)
}

/// `a, b: connection refused; c: no answer in time`: nodes grouped by cause.
fn grouped(nodes: &[NodeVote]) -> Option<String> {
    let away = nodes.iter().filter(|vote| !vote.is_well());
    by_text(away.map(|vote| (&*vote.node, vote.text)), nodes.len())
}

/// Names with their texts, grouped by text; `count` is the number of all names.
pub(crate) fn by_text<'a>(
    nodes: impl Iterator<Item = (&'a str, &'a str)>,
    count: usize,
) -> Option<String> {
    let groups = together(nodes, count, "all");
    let groups: Vec<_> = groups.iter().map(|(names, text)| format!("{names}: {text}")).collect();
    (!groups.is_empty()).then(|| groups.join("; "))
}

impl From<ConfigError> for Failure {
    /// Names the option where the library names its setting.
    fn from(error: ConfigError) -> Self {
        let message = if let ConfigError::OutOfRange { setting, value, least, most } = &error {
            let option = setting.replace('_', "-");
            let [value, least, most] = [value, least, most].map(typed);
            format!("--{option} is {value}: it must be from {least} to {most}")
        } else if matches!(error, ConfigError::Quorum { .. }) {
            format!("--{error}")
        } else {
            error.to_string().replace("client_name", "--name").replace("key_prefix", "--prefix")
        };
        Self::new(USAGE, "config", message)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Config(error) => error.into(),
            ConnectError::System(error) => error.into(),
            ConnectError::NoQuorum(ballot) => {
                Self::no_quorum("too few nodes can vote", &ballot).hint(DOCTOR)
            }
            error => Self::system(error.to_string()),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        match &error {
            LockError::Taken(ballot) => {
                let failure = Self::ballot(TAKEN, "taken", "", ballot);
                Self { message: "the lock is taken: another client holds it".to_owned(), ..failure }
            }
            LockError::NoQuorum(ballot) => {
                let hint = fence_remedy(ballot).unwrap_or(DOCTOR);
                Self::no_quorum("no quorum", ballot).hint(hint)
            }
            LockError::Expired(ballot) => {
                let what = "a quorum granted too late for the TTL, take a longer TTL";
                Self::ballot(NO_QUORUM, "expired", what, ballot)
            }
            LockError::Lost => Self::new(LOST, "lost", error.to_string()),
            LockError::InvalidTtl { ttl, most, .. } => Self::ttl(&error, ttl > most),
            LockError::NoFences { .. } => Self::new(USAGE, "config", error.to_string()),
            LockError::ReservedKey => Self::usage(error.to_string()).hint(
                "to take a slot, name its lock, with --slots; run also takes --read or --write",
            ),
            LockError::InvalidKey { .. } | LockError::InvalidKeys { .. } => {
                Self::usage(error.to_string())
            }
            LockError::Cancelled | LockError::Full | LockError::Closed | _ => {
                Self::system(error.to_string())
            }
        }
    }
}

impl From<ExtendError> for Failure {
    fn from(error: ExtendError) -> Self {
        match &error {
            ExtendError::Lost(ballot) => {
                let what = "the lock is no longer held";
                Self::counted(LOST, "lost", what, "hold it", GONE, ballot)
            }
            ExtendError::NoQuorum(ballot) => {
                let what = "no quorum for the extension";
                let code = code_of(ballot);
                Self::counted(code, kind_of(code), what, "extended it", GONE, ballot).hint(DOCTOR)
            }
            ExtendError::Expired | ExtendError::NotOurs => {
                Self::new(LOST, "lost", "the lock is no longer held: its time is over")
            }
            ExtendError::InvalidTtl { ttl, most, .. } => Self::ttl(&error, ttl > most),
            ExtendError::InvalidName => Self::usage(error.to_string()),
            ExtendError::Busy
            | ExtendError::Cancelled
            | ExtendError::Full
            | ExtendError::LimitReached
            | ExtendError::Closed
            | _ => Self::system(error.to_string()),
        }
    }
}

impl From<UnlockError> for Failure {
    fn from(error: UnlockError) -> Self {
        if matches!(error, UnlockError::InvalidName) {
            return Self::usage(error.to_string());
        }
        Self::system(error.to_string())
    }
}

impl From<DetachError> for Failure {
    fn from(error: DetachError) -> Self {
        Self::new(NO_QUORUM, "unsettled", format!("the lock was released again: {error}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::code(PIPE);
        }
        Self::system(error.to_string())
    }
}

impl From<redbolt_embedded::NodesError> for Failure {
    fn from(error: redbolt_embedded::NodesError) -> Self {
        Self::system(format!("embedded nodes: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_for_several_locks_ends_with_the_highest_of_their_codes() {
        let ended = |code| if code == 0 { Ok(()) } else { Err(Failure::code(code)) };
        let of = |codes: [u8; 3]| Failure::of_each(codes.into_iter().map(ended), false);
        assert!(of([0, 0, 0]).is_ok());
        assert_eq!(of([69, 70, 0]).map_err(|failure| failure.code), Err(70));
    }

    #[test]
    fn the_code_does_not_depend_on_which_nodes_answered_before_the_decision() {
        use Cause::{
            ConnectionRefused, Credentials, Held, KeyDenied, NoDialect, NoScripts, None,
            Quarantined, Timeout,
        };
        let table = [
            ([NoScripts, NoScripts, NoScripts, None, None], NO_PERMISSION),
            ([NoDialect, NoDialect, NoDialect, Timeout, Timeout], NO_PERMISSION),
            ([KeyDenied, KeyDenied, KeyDenied, None, None], NO_PERMISSION),
            ([Quarantined, KeyDenied, KeyDenied, None, None], NO_PERMISSION),
            ([Quarantined, KeyDenied, KeyDenied, KeyDenied, KeyDenied], NO_PERMISSION),
            ([Held, Held, KeyDenied, None, None], NO_PERMISSION),
            ([ConnectionRefused, Timeout, Credentials, None, None], NO_PERMISSION),
            ([ConnectionRefused, Timeout, Timeout, KeyDenied, KeyDenied], NO_QUORUM),
            ([ConnectionRefused, Timeout, Timeout, None, None], NO_QUORUM),
        ];
        for (causes, code) in table {
            assert_eq!(code_without_quorum(causes.into_iter(), 3), code, "{causes:?}");
        }
    }
}
