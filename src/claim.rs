//! [`Claim`]: a holder's note beside its lock, for people who ask which client leads or holds it.
//!
//! Layer: bottom, plain values. No lock depends on it.
//!
//! # Contract
//!
//! - `SINCE NAME TOKEN`: milliseconds since 1970 by the leader's wall clock (0 if it has none), its
//!   [`ClientName`], and the token of its lock. The token comes last because it may hold any bytes.
//! - Anyone who may write the key can write anything there. A reader believes a claim only with the
//!   token that a quorum of nodes holds for the lock itself.

use std::time::{Duration, SystemTime};

use crate::client_name::ClientName;

/// The suffix that makes the key of a holder's claim from the key of its lock.
pub(crate) const CLAIM_SUFFIX: &[u8] = b":elected";

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) name: ClientName,
    /// `None` where the leader has not said.
    pub(crate) since: Option<SystemTime>,
}

impl Claim {
    /// The bytes of a claim. `name` is a [`ClientName`] as text.
    pub(crate) fn write(since_ms: u64, name: &str, token: &[u8]) -> Box<[u8]> {
        [since_ms.to_string().as_bytes(), b" ", name.as_bytes(), b" ", token].concat().into()
    }

    /// Reads a claim of the holder of `token`; `None` for anything else.
    pub(crate) fn read(value: &[u8], token: &[u8]) -> Option<Self> {
        let mut parts = value.splitn(3, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(parts.next()?).ok();
        let since_ms: u64 = text()?.parse().ok()?;
        let name = ClientName::parse(text()?)?;
        if parts.next()? != token {
            return None;
        }
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(since_ms));
        Some(Self { name, since: since.filter(|_| since_ms > 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "redbolt:1:00010203fcfdfeff:web-7:4711:till";

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        // A token that a caller chose may hold spaces.
        for token in [&b"0123abcd"[..], b"a b  c", b"\x00\xff"] {
            let read = Claim::read(&Claim::write(1_763_866_800_123, NAME, token), token).unwrap();
            assert_eq!(read.name.to_string(), NAME);
            let since = read.since.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(since, Duration::from_millis(1_763_866_800_123));
        }
        assert_eq!(Claim::read(&Claim::write(0, NAME, b"t"), b"t").unwrap().since, None);
    }

    #[test]
    fn what_has_another_token_or_form_is_no_claim() {
        let claim = Claim::write(7, NAME, b"token");
        assert!(Claim::read(&claim, b"token").is_some());
        assert_eq!(Claim::read(&claim, b"other"), None);
        assert_eq!(Claim::read(&claim, b""), None);
        for other in [
            "",
            "7",
            "7 redbolt:1:00010203fcfdfeff:web-7:4711:till",
            "-7 redbolt:1:00010203fcfdfeff:web-7:4711:till token",
            "99999999999999999999999 redbolt:1:00010203fcfdfeff:web-7:4711:till token",
            "7 somebody token",
            "7  redbolt:1:00010203fcfdfeff:web-7:4711:till token",
        ] {
            assert_eq!(Claim::read(other.as_bytes(), b"token"), None, "{other}");
        }
    }
}
