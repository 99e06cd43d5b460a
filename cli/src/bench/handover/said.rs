//! What a client of the bench says on its stdout, one line each.

use std::fmt;
use std::time::Duration;

use redbolt::Instant;
use serde_json::Value;

use crate::way::Way;

/// One client's time with the lock, on the clock that all processes of a machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// When the client had the lock.
    pub(super) got: Instant,
    /// When it began to release it.
    pub(super) released: Instant,
    pub(super) by: Way,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// It is connected; the first client has measured the round trip.
    Ready(Option<Duration>),
    Turn(Turn),
    /// So many calls have failed, the last one for this reason.
    Failed(u64, String),
    /// It has no lock any more, and says nothing further.
    Done,
    /// It could not begin: its error as an object.
    Error(Value),
}

impl Said {
    pub(super) fn parse(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            return serde_json::from_str(line).ok().map(Self::Error);
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ready" if rest.is_empty() => Some(Self::Ready(None)),
            "ready" => {
                rest.parse().ok().map(|nanos| Self::Ready(Some(Duration::from_nanos(nanos))))
            }
            "turn" => Turn::parse(rest).map(Self::Turn),
            "failed" => {
                let (count, why) = rest.split_once(' ')?;
                Some(Self::Failed(count.parse().ok()?, why.to_owned()))
            }
            "done" => Some(Self::Done),
            _ => None,
        }
    }
}

impl Turn {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut time = || words.next()?.parse().ok().map(Instant::from_nanos);
        let (got, released) = (time()?, time()?);
        Some(Self { got, released, by: Way::named(words.next()?)? })
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(None) => f.write_str("ready"),
            Self::Ready(Some(round_trip)) => write!(f, "ready {}", round_trip.as_nanos()),
            Self::Turn(Turn { got, released, by }) => {
                write!(f, "turn {} {} {}", got.as_nanos(), released.as_nanos(), by.name())
            }
            Self::Failed(count, why) => write!(f, "failed {count} {}", why.replace('\n', " ")),
            Self::Done => f.write_str("done"),
            Self::Error(object) => object.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_understood() {
        let at = Instant::from_nanos;
        let turn = |by| Said::Turn(Turn { got: at(1), released: at(u64::MAX), by });
        let said = [
            Said::Ready(None),
            Said::Ready(Some(Duration::from_nanos(90_000))),
            Said::Failed(3, "no quorum: 1 of 3".to_owned()),
            Said::Done,
            Said::Error(serde_json::json!({"error": "no_quorum"})),
        ];
        for said in said.into_iter().chain(Way::ALL.map(turn)) {
            assert_eq!(Said::parse(&said.to_string()), Some(said));
        }
        for odd in ["", "turn 1 2", "turn 1 2 luck", "ready x", "failed", "{"] {
            assert_eq!(Said::parse(odd), None, "{odd}");
        }
    }
}
