//! [`Agreement`]: the settings on which all clients of a lock must agree. Each client puts them
//! into its name at the nodes.
//!
//! Layer: bottom, plain values. No lock depends on what another client says.
//!
//! # Contract
//!
//! - The form is `l5.3.HASH:t30000:g1:f1:pHASH.TEXT`. `l` is a list of 5 nodes with a quorum of 3,
//!   and the hash of their names. A next list has a second `l`. Then come `max_ttl` in
//!   milliseconds, restart guard, failover guard and prefix.
//! - Equal hashes almost surely mean equal lists. Lists with different hashes may have the same
//!   nodes: hosts may spell one address differently.

use std::fmt;
use std::time::Duration;

use crate::plain;

/// The settings on which all clients of a lock must agree. Exclusion rests on them, and the prefix
/// decides which lock a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agreement {
    /// The list of nodes, and behind it the next one, if there is one.
    pub lists: Vec<NodeList>,
    /// The longest TTL.
    pub max_ttl: Duration,
    /// Whether a restarted node waits for the longest TTL before it votes.
    pub restart_guard: bool,
    /// Whether a master with replicas votes only if it ceases to grant once it is cut off from
    /// them.
    pub failover_guard: bool,
    /// A short form of the key prefix: eight digits of its hash, a dot, and its first 16
    /// characters. `_` stands for each character that is not plain. `None` for no prefix.
    pub prefix: Option<String>,
}

/// A list of nodes, as clients describe it in their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeList {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many votes of theirs a lock needs.
    pub quorum: u32,
    /// A hash of their names, in any order.
    pub hash: u32,
}

impl NodeList {
    pub(crate) fn new<'a>(quorum: u32, names: impl Iterator<Item = &'a str>) -> Self {
        let count = |list: Self, name: &str| Self {
            nodes: list.nodes + 1,
            hash: list.hash.wrapping_add(fnv(name.as_bytes())),
            ..list
        };
        names.fold(Self { nodes: 0, quorum, hash: 0 }, count)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (nodes, quorum) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let hash = u32::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Self { nodes, quorum, hash })
    }
}

impl fmt::Display for NodeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:08x}", self.nodes, self.quorum, self.hash)
    }
}

/// The most lists that a client can have.
const LISTS_MAX: usize = 2;

/// The most characters of a prefix that are shown.
const PREFIX_LEN_MAX: usize = 16;

impl Agreement {
    /// With both guards on.
    pub(crate) fn new(lists: Vec<NodeList>, max_ttl_ms: u32, prefix: &[u8]) -> Self {
        Self {
            lists,
            max_ttl: Duration::from_millis(max_ttl_ms.into()),
            restart_guard: true,
            failover_guard: true,
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
        let switch = |letter| match field(letter)? {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        let mark = field('p')?;
        let lists = fields.clone().filter_map(|field| field.strip_prefix('l'));
        let lists: Option<Vec<_>> = lists.take(LISTS_MAX).map(NodeList::parse).collect();
        Some(Self {
            lists: lists.filter(|lists| !lists.is_empty())?,
            max_ttl: Duration::from_millis(number('t')?.into()),
            restart_guard: switch('g')?,
            failover_guard: switch('f')?,
            prefix: plain::word(mark),
        })
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lists, max_ttl, restart_guard, failover_guard, prefix } = self;
        let [restart, failover] = [restart_guard, failover_guard].map(|is_on| u32::from(*is_on));
        let ttl = max_ttl.as_millis();
        let prefix = prefix.as_deref().unwrap_or_default();
        lists.iter().try_for_each(|list| write!(f, "l{list}:"))?;
        write!(f, "t{ttl}:g{restart}:f{failover}:p{prefix}")
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

    fn list() -> NodeList {
        NodeList::new(2, ["a:1", "b:1"].into_iter())
    }

    #[test]
    fn the_order_of_nodes_makes_no_other_list() {
        let list = |names: [&'static str; 2]| NodeList::new(2, names.into_iter());
        assert_eq!(list(["a:1", "b:1"]), list(["b:1", "a:1"]));
        assert_ne!(list(["a:1", "b:1"]), list(["a:1", "b:2"]));
    }

    #[test]
    fn what_a_client_says_is_read_as_it_was_said_and_is_bounded() {
        for prefix in [&b""[..], b"eu:", "ü\n:*".repeat(999).as_bytes()] {
            let list = NodeList { nodes: 32, quorum: 17, hash: u32::MAX };
            let said = Agreement::new(vec![list; 2], u32::MAX, prefix);
            let text = said.to_string();
            assert_eq!(Agreement::parse(text.split(':')), Some(said), "{text}");
            assert!(
                text.len() <= 83 && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)),
                "{text}"
            );
        }
        assert_eq!(
            Agreement { restart_guard: false, ..Agreement::new(vec![list()], 30_000, b"eu:") }
                .to_string(),
            "l2.2.12569edd:t30000:g0:f1:p369f6cef.eu_"
        );
    }

    #[test]
    fn later_fields_are_ignored_and_with_one_missing_nothing_is_said() {
        let read = |text: &str| Agreement::parse(text.split(':'));
        assert!(read("z9:l5.3.0:f0:g1:t30000:p:x").is_some());
        for text in [
            "",
            "l5.3.0:t30000:g1:f1",
            "l5.3.0:t30000:g1:p",
            "l5.3.0:t30000:g2:f1:p",
            "l5.3.0:t-1:g1:f1:p",
            "l5.3:t30000:g1:f1:p",
            "l5.3.0.0:t30000:g1:f1:p",
            "l5.3.x:t30000:g1:f1:p",
            "t30000:g1:f1:p",
            "nodes=5",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn prefixes_that_begin_alike_are_told_apart() {
        let of = |prefix: &str| Agreement::new(vec![list()], 1, prefix.as_bytes()).prefix;
        assert_ne!(of("a-long-prefix-of-stock"), of("a-long-prefix-of-tills"));
        assert_ne!(of("a:"), of("a_"));
    }
}
