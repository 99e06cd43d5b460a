//! [`Agreement`]: the settings on which all clients of a lock must agree. Each client puts them
//! into its name at the nodes.
//!
//! Layer: bottom, plain values. No lock depends on what another client says.
//!
//! # Contract
//!
//! - `n5:q3:t30000:g1:pHASH.TEXT`: nodes, quorum, `max_ttl` in milliseconds, restart guard, prefix.
//! - No field says which nodes there are: hosts may spell one address differently, and a difference
//!   in spelling alone would be a false alarm.

use std::fmt;
use std::time::Duration;

use crate::plain;

/// The settings of a client on which mutual exclusion, or one name for one lock, rests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agreement {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many votes make a lock.
    pub quorum: u32,
    /// The longest TTL.
    pub max_ttl: Duration,
    /// Whether a restarted node waits for the longest TTL before it votes.
    pub restart_guard: bool,
    /// The prefix of the keys in short: eight digits of its hash, a dot, and its first 16
    /// characters, with `_` for each that is not plain. `None` for no prefix.
    pub prefix: Option<String>,
}

/// The most characters of a prefix that are shown.
const PREFIX_LEN_MAX: usize = 16;

impl Agreement {
    pub(crate) fn new(
        nodes: u32,
        quorum: u32,
        max_ttl_ms: u32,
        guard: bool,
        prefix: &[u8],
    ) -> Self {
        Self {
            nodes,
            quorum,
            max_ttl: Duration::from_millis(max_ttl_ms.into()),
            restart_guard: guard,
            prefix: (!prefix.is_empty()).then(|| {
                let text: String =
                    String::from_utf8_lossy(prefix).chars().take(PREFIX_LEN_MAX).collect();
                format!("{:08x}.{}", fnv(prefix), plain::word(&text).unwrap_or_default())
            }),
        }
    }

    /// Reads the fields, in any order and among others. `None` if one is missing or has another
    /// form.
    pub(crate) fn parse<'a>(fields: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let field = |letter: char| fields.clone().find_map(|field| field.strip_prefix(letter));
        let number = |letter| field(letter)?.parse::<u32>().ok();
        let mark = field('p')?;
        Some(Self {
            nodes: number('n')?,
            quorum: number('q')?,
            max_ttl: Duration::from_millis(number('t')?.into()),
            restart_guard: match field('g')? {
                "1" => true,
                "0" => false,
                _ => return None,
            },
            prefix: plain::word(mark),
        })
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, quorum, max_ttl, restart_guard, prefix } = self;
        let (ttl, guard) = (max_ttl.as_millis(), u32::from(*restart_guard));
        let prefix = prefix.as_deref().unwrap_or_default();
        write!(f, "n{nodes}:q{quorum}:t{ttl}:g{guard}:p{prefix}")
    }
}

/// FNV-1a: the same in every version of every client.
fn fnv(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_read_as_it_was_said_and_is_bounded() {
        for prefix in [&b""[..], b"eu:", "ü\n:*".repeat(999).as_bytes()] {
            let said = Agreement::new(32, 17, u32::MAX, true, prefix);
            let text = said.to_string();
            assert_eq!(Agreement::parse(text.split(':')), Some(said), "{text}");
            assert!(
                text.len() <= 50 && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)),
                "{text}"
            );
        }
        assert_eq!(
            Agreement::new(5, 3, 30_000, false, b"eu:").to_string(),
            "n5:q3:t30000:g0:p369f6cef.eu_"
        );
    }

    #[test]
    fn later_fields_are_ignored_and_with_one_missing_nothing_is_said() {
        let read = |text: &str| Agreement::parse(text.split(':'));
        assert!(read("q3:z9:n5:g1:t30000:p:x").is_some());
        for text in ["", "n5:q3:t30000:g1", "n5:q3:t30000:g2:p", "n5:q3:t-1:g1:p", "nodes=5"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn prefixes_that_begin_alike_are_told_apart() {
        let of = |prefix: &str| Agreement::new(5, 3, 1, true, prefix.as_bytes()).prefix;
        assert_ne!(of("a-long-prefix-of-stock"), of("a-long-prefix-of-tills"));
        assert_ne!(of("a:"), of("a_"));
    }
}
