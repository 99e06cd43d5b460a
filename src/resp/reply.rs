//! [`Reply`]: the content of a frame, borrowed from the frame.
//!
//! Layer: bottom, inside `resp`. `command` and `node` turn replies into answers, and `query` turns
//! them into values.
//!
//! # Contract
//!
//! - Made from frames that [`Decoder`](super::Decoder) has validated. It builds no tree: an
//!   aggregate is an iterator that reads its elements in place.
//! - It skips attributes: they are not elements.
//! - `Debug` shows types, counts and lengths, never text: a server's error may quote a secret.
//!
//! # Invariants
//!
//! - On other bytes an iterator ends early; it does not panic (`foreign_bytes_end_the_iterator`).

use std::fmt;
use std::iter::FusedIterator;

use super::grammar::{FrameKind, Unit, VERBATIM_LEN_MIN};

/// One reply, or one element of a reply.
#[derive(Clone, Eq, PartialEq)]
pub(crate) enum Reply<'b> {
    /// `+`: a status.
    Simple(&'b [u8]),
    /// `-` or `!`: an error, without its type byte.
    Error(&'b [u8]),
    /// `:`
    Integer(i64),
    /// `$`: bytes.
    Bulk(&'b [u8]),
    /// `_`, or RESP2's `$-1` and `*-1`.
    Null,
    /// `#`
    Boolean(bool),
    /// `,` or `(`: the text of a double, or of an integer of any size.
    Number(&'b [u8]),
    /// `=`: the text behind its format.
    Verbatim(&'b [u8]),
    /// `*`
    Array(Items<'b>),
    /// `~`
    Set(Items<'b>),
    /// `%`: key, value, key, value, as RESP2 sends a map in an array.
    Map(Items<'b>),
    /// `>`: its first element names its kind.
    Push(Items<'b>),
}

impl<'b> Reply<'b> {
    /// The text of a simple, bulk or verbatim string.
    pub(crate) const fn text(&self) -> Option<&'b [u8]> {
        if let Self::Simple(text) | Self::Bulk(text) | Self::Verbatim(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// The first word of an error, such as `NOSCRIPT`; `None` if this is not an error or is empty.
    pub(crate) fn error_prefix(&self) -> Option<&'b [u8]> {
        let Self::Error(text) = self else { return None };
        text.split(|&byte| byte == b' ').next().filter(|word| !word.is_empty())
    }

    /// The reply that fills `bytes`.
    pub(super) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let head = Head::parse(bytes)?;
        head.reply(head.rest)
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "Simple({} bytes)", text.len()),
            Self::Error(text) => write!(f, "Error({} bytes)", text.len()),
            Self::Integer(n) => write!(f, "Integer({n})"),
            Self::Bulk(bytes) => write!(f, "Bulk({} bytes)", bytes.len()),
            Self::Null => f.write_str("Null"),
            Self::Boolean(value) => write!(f, "Boolean({value})"),
            Self::Number(text) => write!(f, "Number({} bytes)", text.len()),
            Self::Verbatim(text) => write!(f, "Verbatim({} bytes)", text.len()),
            Self::Array(items) => write!(f, "Array{items:?}"),
            Self::Set(items) => write!(f, "Set{items:?}"),
            Self::Map(items) => write!(f, "Map{items:?}"),
            Self::Push(items) => write!(f, "Push{items:?}"),
        }
    }
}

/// The elements of an aggregate, in order; the elements of a map are its keys and values in turn.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Items<'b> {
    /// The bytes of the elements that are not yet taken.
    rest: &'b [u8],
    len: usize,
}

impl<'b> Items<'b> {
    /// The next element, and the bytes behind it.
    fn split_first(&self) -> Option<(Reply<'b>, &'b [u8])> {
        let mut bytes = self.rest;
        loop {
            let head = Head::parse(bytes)?;
            let (body, behind) = head.rest.split_at_checked(head.body_len()?)?;
            if head.kind != FrameKind::Attribute {
                return Some((head.reply(body)?, behind));
            }
            bytes = behind;
        }
    }
}

impl<'b> Iterator for Items<'b> {
    type Item = Reply<'b>;

    fn next(&mut self) -> Option<Reply<'b>> {
        let len = self.len.checked_sub(1)?;
        let Some((reply, rest)) = self.split_first() else {
            self.len = 0;
            return None;
        };
        self.len = len;
        self.rest = rest;
        Some(reply)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

/// `len()` is the declared count less the elements taken.
impl ExactSizeIterator for Items<'_> {}

impl FusedIterator for Items<'_> {}

impl fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} elements)", self.len)
    }
}

/// The first line of an element, and all that follows it.
struct Head<'b> {
    /// RESP2's nulls count as [`FrameKind::Null`].
    kind: FrameKind,
    /// Between the type byte and the line ending.
    line: &'b [u8],
    /// The bytes or elements that the line announces.
    declared: usize,
    rest: &'b [u8],
}

impl<'b> Head<'b> {
    fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (&first, bytes) = bytes.split_first()?;
        let end = bytes.iter().position(|&byte| byte == b'\r')?;
        let (line, rest) = bytes.split_at_checked(end)?;
        // In a valid frame, `-1` is the length only of a null: `$-1` or `*-1`.
        let kind = FrameKind::of(first)?;
        let is_null = kind.unit() != Unit::Nothing && line == b"-1";
        let kind = if is_null { FrameKind::Null } else { kind };
        let declared = match kind.unit() {
            Unit::Nothing => 0,
            Unit::Bytes => parse(line)?,
            Unit::Elements | Unit::Pairs => kind.elements(parse(line)?),
        };
        Some(Self { kind, line, declared, rest: rest.strip_prefix(b"\r\n")? })
    }

    /// How many bytes of `rest` belong to this element.
    fn body_len(&self) -> Option<usize> {
        match self.kind.unit() {
            Unit::Nothing => Some(0),
            Unit::Bytes => self.declared.checked_add(2),
            Unit::Elements | Unit::Pairs => elements_len(self.rest, self.declared),
        }
    }

    /// The reply, given the bytes of `rest` that belong to it.
    fn reply(&self, body: &'b [u8]) -> Option<Reply<'b>> {
        let items = Items { rest: body, len: self.declared };
        Some(match self.kind {
            FrameKind::Simple => Reply::Simple(self.line),
            FrameKind::Error => Reply::Error(self.line),
            FrameKind::Integer => Reply::Integer(parse(self.line)?),
            FrameKind::Null => Reply::Null,
            FrameKind::Boolean => Reply::Boolean(self.line == b"t"),
            FrameKind::Number => Reply::Number(self.line),
            FrameKind::Bulk => Reply::Bulk(body.get(..self.declared)?),
            FrameKind::BulkError => Reply::Error(body.get(..self.declared)?),
            FrameKind::Verbatim => Reply::Verbatim(body.get(VERBATIM_LEN_MIN..self.declared)?),
            FrameKind::Array => Reply::Array(items),
            FrameKind::Set => Reply::Set(items),
            FrameKind::Map => Reply::Map(items),
            FrameKind::Push => Reply::Push(items),
            FrameKind::Attribute => return None,
        })
    }
}

/// How many bytes the first `count` elements of `bytes` take, including nested ones and attributes.
fn elements_len(bytes: &[u8], count: usize) -> Option<usize> {
    let mut rest = bytes;
    // One counter serves all levels: it does not matter here to which aggregate an element belongs.
    let mut lacking = count;
    while lacking > 0 {
        let head = Head::parse(rest)?;
        rest = head.rest;
        if head.kind != FrameKind::Attribute {
            lacking -= 1;
        }
        match head.kind.unit() {
            Unit::Nothing => {}
            Unit::Bytes => rest = rest.get(head.declared.checked_add(2)?..)?,
            Unit::Elements | Unit::Pairs => lacking = lacking.checked_add(head.declared)?,
        }
    }
    bytes.len().checked_sub(rest.len())
}

fn parse<T: std::str::FromStr>(line: &[u8]) -> Option<T> {
    std::str::from_utf8(line).ok()?.parse().ok()
}
