//! The meaning of an answer by its first words: whether the command ran, and if not, why.
//!
//! # Contract
//!
//! - [`Answer::Refused`] only if the server is known to refuse before it executes. Every other
//!   error is [`Answer::Odd`]: the key may have been written.
//! - Redbolt keeps and shows no text behind the first words, because servers echo arguments there.
//!   Only [`denied`] searches it.

use crate::error::Cause;
use crate::resp::{Quick, Reply};

/// An answer to one of the commands of which a lock is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// `+OK`, or the 2 of a transfer whose waiter was told.
    Ok,
    /// Null in any form.
    Null,
    /// Integer zero.
    Zero,
    /// Integer one.
    One,
    /// A counter of fences, a time, or the place of the first free key. The node stores the number
    /// beside the answer, to keep the answer small.
    Number,
    /// Refused before execution.
    Refused(Cause),
    /// Anything else: the command may have run.
    Odd,
}

impl Answer {
    /// Whether a compare-and-delete has deleted the key; `None` if the answer does not say.
    pub(crate) fn deleted(self) -> Option<bool> {
        let says = matches!(self, Self::One | Self::Zero | Self::Refused(Cause::WrongType));
        says.then_some(self == Self::One)
    }
}

impl From<Quick> for Answer {
    #[inline]
    fn from(quick: Quick) -> Self {
        match quick {
            Quick::Ok => Self::Ok,
            Quick::Null => Self::Null,
            Quick::Zero => Self::Zero,
            Quick::One => Self::One,
        }
    }
}

/// The meaning of `reply`.
#[expect(clippy::wildcard_enum_match_arm, reason = "any other shape answers nothing we asked")]
pub(crate) fn classify(reply: &Reply<'_>) -> Answer {
    match reply {
        Reply::Simple(b"OK") => Answer::Ok,
        Reply::Null => Answer::Null,
        Reply::Integer(0) => Answer::Zero,
        Reply::Integer(1) => Answer::One,
        Reply::Error(text) => classify_error(text, reply.error_prefix().unwrap_or_default()),
        _ => Answer::Odd,
    }
}

/// The number that a script returns as text: a counter of fences, or the place of a key.
pub(crate) fn counter(reply: &Reply<'_>) -> Option<u64> {
    if let Reply::Bulk(digits) = reply { decimal(digits) } else { None }
}

/// The answer to `TIME`: seconds and microseconds, as microseconds.
pub(crate) fn time(reply: &Reply<'_>) -> Option<u64> {
    let Reply::Array(items) = reply else { return None };
    let mut parts = items.clone().map(|item| item.text().and_then(decimal));
    let (seconds, micros) = (parts.next()??, parts.next()??);
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// Scripts append their own text to an error, so only the first words count.
fn classify_error(text: &[u8], word: &[u8]) -> Answer {
    let cause = match word {
        b"OOM" => Cause::OutOfMemory,
        b"READONLY" => Cause::Replica,
        b"MASTERDOWN" => Cause::MasterDown,
        b"LOADING" => Cause::Loading,
        b"MISCONF" => Cause::SaveFailed,
        b"NOREPLICAS" => Cause::NoReplicas,
        b"BUSY" => Cause::Busy,
        b"NOAUTH" | b"WRONGPASS" => Cause::Credentials,
        b"NOPERM" => denied(text),
        b"DENIED" => Cause::Protected,
        b"WRONGTYPE" => Cause::WrongType,
        b"MOVED" | b"ASK" | b"CLUSTERDOWN" | b"CROSSSLOT" | b"TRYAGAIN" => Cause::Cluster,
        b"NOPROTO" => Cause::Unsupported,
        b"FENCE" => Cause::FenceCounter,
        b"ERR" => return classify_plain(text),
        _ => return Answer::Odd,
    };
    Answer::Refused(cause)
}

/// Whether the server denied the user the command or only the key: the first concerns the node, the
/// second the call.
fn denied(text: &[u8]) -> Cause {
    let names_command = text.windows(COMMAND_DENIED.len()).any(|part| part == COMMAND_DENIED);
    if names_command { Cause::NoPermission } else { Cause::KeyDenied }
}

/// Part of every server's text for a denied command, and of none for a denied key.
const COMMAND_DENIED: &[u8] = b" to run the ";

fn classify_plain(text: &[u8]) -> Answer {
    let starts = |start: &[u8]| text.starts_with(start);
    if starts(b"ERR unknown command")
        || starts(b"ERR unknown subcommand")
        || starts(b"ERR Unknown subcommand")
        || starts(b"ERR syntax error")
    {
        Answer::Refused(Cause::Unsupported)
    } else if starts(b"ERR ACL failure in script") {
        Answer::Refused(denied(text))
    } else if starts(b"ERR The user executing the script can't run") {
        Answer::Refused(Cause::NoPermission)
    } else if starts(b"ERR The user executing the script can't access") {
        Answer::Refused(Cause::KeyDenied)
    } else if starts(b"ERR Key should be of string type") {
        Answer::Refused(Cause::WrongType)
    } else if starts(b"ERR max number of clients") {
        Answer::Refused(Cause::TooManyClients)
    } else {
        Answer::Odd
    }
}
