//! [`ClientName`]: how a client names itself at the nodes, for people who ask which client holds a
//! lock.
//!
//! Layer: bottom, plain values. No lock depends on it.
//!
//! # Contract
//!
//! - `redbolt:1:ID:HOST:PID:PROGRAM`, each part of plain characters and bounded; an unknown part is
//!   empty. Behind another colon follow the fields of its [`Agreement`]. There may be more fields:
//!   a reader ignores those that it does not know.
//! - A name is a claim: any client of a node can call itself what it likes.

use std::fmt::{self, Write as _};

use crate::agreement::Agreement;
use crate::plain::{WORD_LEN_MAX, is_plain, word};

/// The beginning of every name, with the version of its form.
const PREFIX: &str = "redbolt:1:";

/// The id of a client: it begins all tokens that the client draws.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId([u8; 8]);

impl ClientId {
    pub(crate) const LEN: usize = 8;

    /// The id of the client whose engine drew these bytes.
    pub(crate) const fn new(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// The client that drew these bytes of a token, or of a waiter's id: both begin with the
    /// client's id.
    pub(crate) fn of<const LEN: usize>(name: &[u8; LEN]) -> Self {
        Self(name.first_chunk().copied().unwrap_or_default())
    }

    pub(crate) const fn bytes(self) -> [u8; 8] {
        self.0
    }

    /// The client that drew the token with these bytes on the wire. `None` if the token does not
    /// have the form that Redbolt draws.
    #[must_use]
    pub fn of_token(wire: &[u8]) -> Option<Self> {
        crate::token::unhex(wire).map(|token| Self::of(&token))
    }

    fn parse(digits: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 16 || !digits.bytes().all(is_digit) {
            return None;
        }
        u64::from_str_radix(digits, 16).ok().map(|id| Self(id.to_be_bytes()))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// The process that a client runs in, as the driver saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) host: String,
    pub(crate) pid: Option<u32>,
    pub(crate) program: String,
}

/// The name of a client at the nodes: in CLIENT LIST, and beside a lock by which it leads. Clients
/// choose their names themselves: show a name to people, and rely on it for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientName {
    /// The beginning of its tokens.
    pub client: ClientId,
    /// Its host.
    pub host: Option<String>,
    /// Its process id.
    pub pid: Option<u32>,
    /// The name of its program, or its [`client_name`](crate::Config::client_name).
    pub program: Option<String>,
    /// Its settings; `None` for a name beside a lock, and for a version that does not tell them.
    pub agreement: Option<Agreement>,
}

impl ClientName {
    /// The name of the client. If the caller chose a name, `chosen` replaces the name of the
    /// program.
    pub(crate) fn of(client: ClientId, process: &Process, chosen: Option<&str>) -> Self {
        Self {
            client,
            agreement: None,
            host: word(&process.host),
            pid: process.pid,
            program: word(chosen.unwrap_or(&process.program)),
        }
    }

    /// Reads a name from CLIENT LIST; `None` if it does not have this form.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split(':');
        let client = ClientId::parse(parts.next()?)?;
        let host = word(parts.next()?);
        let pid = parts.next()?.parse().ok();
        let program = word(parts.next()?);
        Some(Self { client, host, pid, program, agreement: Agreement::parse(parts) })
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |part: &Option<String>| part.as_deref().unwrap_or_default().to_owned();
        write!(f, "{PREFIX}{}:{}:", self.client, text(&self.host))?;
        if let Some(pid) = self.pid {
            write!(f, "{pid}")?;
        }
        f.write_char(':')?;
        f.write_str(&text(&self.program))?;
        self.agreement.iter().try_for_each(|agreement| write!(f, ":{agreement}"))
    }
}

/// Whether a caller may choose this name: the nodes' lists show it as it is.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=WORD_LEN_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ClientId = ClientId::new([0, 1, 2, 3, 0xfc, 0xfd, 0xfe, 0xff]);

    fn process() -> Process {
        Process { host: "web-7.eu".into(), pid: Some(4711), program: "till".into() }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let name = ClientName::of(ID, &process(), None);
        assert_eq!(name.to_string(), "redbolt:1:00010203fcfdfeff:web-7.eu:4711:till");
        assert_eq!(ClientName::parse(&name.to_string()), Some(name));
        let chosen = ClientName::of(ID, &process(), Some("stock"));
        assert_eq!(chosen.to_string(), "redbolt:1:00010203fcfdfeff:web-7.eu:4711:stock");
        let unknown = ClientName::of(ID, &Process::default(), None);
        assert_eq!(unknown.to_string(), "redbolt:1:00010203fcfdfeff:::");
        assert_eq!(ClientName::parse(&unknown.to_string()), Some(unknown));
    }

    #[test]
    fn later_fields_are_ignored_and_other_forms_are_no_names() {
        let name = ClientName::of(ID, &process(), None);
        assert_eq!(ClientName::parse(&format!("{name}:nodes=5:quorum=3")), Some(name));
        let id = "00010203fcfdfeff";
        for other in [
            String::new(),
            "till-7".to_owned(),
            format!("redbolt:2:{id}:h:1:p"),
            format!("redbolt:1:{id}:h:1"),
            "redbolt:1:0001:h:1:p".to_owned(),
            "redbolt:1:00010203FCFDFEFF:h:1:p".to_owned(),
            "redbolt:1:+0010203fcfdfeff:h:1:p".to_owned(),
        ] {
            assert_eq!(ClientName::parse(&other), None, "{other}");
        }
    }

    #[test]
    fn whatever_a_host_or_program_is_called_the_name_is_one_bounded_word() {
        let process = Process {
            host: "a b\n:c\u{1b}ü".repeat(99),
            pid: Some(u32::MAX),
            program: "-sh (deleted)\0".repeat(99),
        };
        let list = crate::agreement::NodeList::new(17, ["n:1"; 32].into_iter());
        let agreement = Agreement::new(vec![list; 2], u32::MAX, "\n:ü".repeat(99).as_bytes());
        let name = ClientName { agreement: Some(agreement), ..ClientName::of(ID, &process, None) };
        let name = name.to_string();
        assert_eq!(ClientName::parse(&name).map(|name| name.to_string()), Some(name.clone()));
        assert!(name.bytes().all(|byte| (b'!'..=b'~').contains(&byte)), "{name}");
        assert!(name.len() <= 250, "{}", name.len());
        assert_eq!(name.matches(':').count(), 11);
    }

    #[test]
    fn only_a_token_of_drawn_form_names_a_client() {
        let token = b"00010203fcfdfeff0123456789abcdef01234567";
        assert_eq!(ClientId::of_token(token), Some(ID));
        for other in [&token[..39], b"00010203FCFDFEFF0123456789abcdef01234567", b""] {
            assert_eq!(ClientId::of_token(other), None);
        }
    }
}
