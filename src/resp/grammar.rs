//! The grammar of one element: a state, a byte, the next state.
//!
//! Layer: bottom, inside `resp`. `decode` calls it, and owns positions, levels and sizes. `reply`
//! reads by [`FrameKind`] too.
//!
//! # Contract
//!
//! - [`Position::next`] judges each byte only by the bytes before it. So it raises an error at the
//!   first byte that fits no valid reply. The error is the same under any chunking. Within a double
//!   or a big number, it checks only that each byte can occur in such a number.
//! - [`Position::Text`] and [`Position::Payload`] are runs: `decode` skips over them without asking here.
//!
//! # Invariants
//!
//! - No state holds received bytes, and no state grows.
//! - [`Integer`] accepts the same lines as `i64::from_str` within 20 characters
//!   (`integers_are_those_that_fit_64_bits`).

use super::error::ProtocolError;

/// The longest text line, its type byte and line ending not counted.
pub(super) const LINE_LEN_MAX: usize = 64 * 1024;
/// The longest double or big number: both are kept as text, but no server needs more.
const NUMBER_LEN_MAX: u16 = 1024;
/// The length of `txt:`, with nothing behind it.
pub(super) const VERBATIM_LEN_MIN: usize = 4;

/// The type of an element, by its first byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FrameKind {
    Simple,
    Error,
    Integer,
    Bulk,
    Array,
    Null,
    Boolean,
    /// A double or a big number.
    Number,
    BulkError,
    Verbatim,
    Map,
    Set,
    Attribute,
    Push,
}

impl FrameKind {
    pub(super) const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            b'+' => Self::Simple,
            b'-' => Self::Error,
            b':' => Self::Integer,
            b'$' => Self::Bulk,
            b'*' => Self::Array,
            b'_' => Self::Null,
            b'#' => Self::Boolean,
            b',' | b'(' => Self::Number,
            b'!' => Self::BulkError,
            b'=' => Self::Verbatim,
            b'%' => Self::Map,
            b'~' => Self::Set,
            b'|' => Self::Attribute,
            b'>' => Self::Push,
            _ => return None,
        })
    }

    /// The unit of the number in this element's header.
    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Simple
            | Self::Error
            | Self::Integer
            | Self::Null
            | Self::Boolean
            | Self::Number => Unit::Nothing,
            Self::Bulk | Self::BulkError | Self::Verbatim => Unit::Bytes,
            Self::Array | Self::Set | Self::Push => Unit::Elements,
            Self::Map | Self::Attribute => Unit::Pairs,
        }
    }

    /// The elements that a declared count means. If `usize` overflows, the cap refuses it.
    pub(super) const fn elements(self, count: usize) -> usize {
        match self.unit() {
            Unit::Nothing | Unit::Bytes => 0,
            Unit::Elements => count,
            Unit::Pairs => count.saturating_mul(2),
        }
    }
}

/// The unit of the number in an element's header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unit {
    /// There is no number: the element is its line.
    Nothing,
    Bytes,
    Elements,
    Pairs,
}

/// The place in an element where the scan stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    Type,
    /// Inside a text line that may have `left` more bytes.
    Text {
        left: usize,
    },
    /// At the end of a text line, or at its cap.
    TextEnd,
    Null,
    Boolean,
    Integer(Integer),
    /// Inside a double or a big number that may have `left` more bytes.
    Number {
        left: u16,
    },
    Length(FrameKind, Length),
    /// Inside the `txt:` of a verbatim string, `seen` bytes of it passed.
    Format {
        seen: u8,
        len: usize,
    },
    /// Inside a bulk string with `left` more bytes before its line ending.
    Payload {
        left: usize,
    },
    Cr(Lexeme),
    Lf(Lexeme),
}

/// The part that a line ending ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lexeme {
    /// An element that is one line.
    Line,
    /// The header of an element with this many bytes, elements or pairs.
    Header(FrameKind, usize),
    /// The bytes of a bulk string.
    Payload,
}

/// The outcome of one byte.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Position(Position),
    Lexeme(Lexeme),
}

impl Position {
    /// Takes the byte that follows. Never called for a run.
    pub(super) fn next(self, byte: u8) -> Result<Next, ProtocolError> {
        use ProtocolError as E;
        Ok(Next::Position(match (self, byte) {
            (Self::Type, _) => match FrameKind::of(byte) {
                Some(kind) => Self::begin(kind),
                None => return Err(E::UnknownType(byte)),
            },
            (Self::Null | Self::TextEnd, b'\r') => Self::Lf(Lexeme::Line),
            (Self::TextEnd, b'\n') => return Err(E::Terminator),
            (Self::TextEnd, _) => return Err(E::LineTooLong),
            (Self::Cr(lexeme), b'\r') => Self::Lf(lexeme),
            (Self::Cr(_), _) => return Err(E::Terminator),
            (Self::Null, _) => return Err(E::Null),
            (Self::Boolean, b't' | b'f') => Self::Cr(Lexeme::Line),
            (Self::Boolean, _) => return Err(E::Boolean),
            (Self::Integer(integer), b'\r') if integer.is_complete() => Self::Lf(Lexeme::Line),
            (Self::Integer(integer), _) => Self::Integer(integer.push(byte).ok_or(E::Integer)?),
            (Self::Number { left }, b'\r') if left < NUMBER_LEN_MAX => Self::Lf(Lexeme::Line),
            (Self::Number { left }, _) if b"0123456789+-.eEinfa".contains(&byte) => {
                Self::Number { left: left.checked_sub(1).ok_or(E::LineTooLong)? }
            }
            (Self::Number { .. }, _) => return Err(E::Number),
            (Self::Length(kind, length), b'\r') => Self::Lf(length.lexeme(kind)?),
            (Self::Length(kind, length), _) => Self::Length(kind, length.push(kind, byte)?),
            (Self::Format { seen: seen @ 0..=2, len }, _) => Self::Format { seen: seen + 1, len },
            (Self::Format { len, .. }, b':') => Self::payload(len - VERBATIM_LEN_MIN),
            (Self::Format { .. }, _) => return Err(E::Verbatim),
            (Self::Lf(lexeme), b'\n') => return Ok(Next::Lexeme(lexeme)),
            (Self::Lf(_), _) => return Err(E::Terminator),
            (Self::Text { .. } | Self::Payload { .. }, _) => self,
        }))
    }

    const fn begin(kind: FrameKind) -> Self {
        match kind {
            FrameKind::Simple | FrameKind::Error => Self::Text { left: LINE_LEN_MAX },
            FrameKind::Integer => Self::Integer(Integer::START),
            FrameKind::Null => Self::Null,
            FrameKind::Boolean => Self::Boolean,
            FrameKind::Number => Self::Number { left: NUMBER_LEN_MAX },
            FrameKind::Bulk
            | FrameKind::BulkError
            | FrameKind::Verbatim
            | FrameKind::Array
            | FrameKind::Set
            | FrameKind::Map
            | FrameKind::Attribute
            | FrameKind::Push => Self::Length(kind, Length::Start),
        }
    }

    /// A bulk string of `len` bytes, from the first of them.
    pub(super) const fn payload(len: usize) -> Self {
        if len == 0 { Self::Cr(Lexeme::Payload) } else { Self::Payload { left: len } }
    }
}

/// `-9223372036854775808` is the longest integer.
const INTEGER_LEN_MAX: u8 = 20;

/// `:` lines. A leading `+` is accepted, as the specification allows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integer {
    magnitude: u64,
    len: u8,
    digits: u8,
    negative: bool,
}

impl Integer {
    pub(super) const START: Self = Self { magnitude: 0, len: 0, digits: 0, negative: false };

    pub(super) fn push(mut self, byte: u8) -> Option<Self> {
        match byte {
            b'+' | b'-' if self.len == 0 => self.negative = byte == b'-',
            b'0'..=b'9' if self.len < INTEGER_LEN_MAX => {
                let digit = u64::from(byte - b'0');
                self.magnitude = self.magnitude.checked_mul(10)?.checked_add(digit)?;
                self.digits += 1;
                if self.magnitude > i64::MAX.unsigned_abs() + u64::from(self.negative) {
                    return None;
                }
            }
            _ => return None,
        }
        self.len += 1;
        Some(self)
    }

    pub(super) const fn is_complete(self) -> bool {
        self.digits > 0
    }
}

/// A length or count. It has one spelling: digits without sign or leading zero, or `-1` if RESP2
/// has a null there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    Start,
    Minus,
    MinusOne,
    Digits(usize),
}

impl Length {
    fn push(self, kind: FrameKind, byte: u8) -> Result<Self, ProtocolError> {
        match (self, byte) {
            (Self::Start, b'?') => Err(ProtocolError::Streamed),
            (Self::Start, b'-') if matches!(kind, FrameKind::Bulk | FrameKind::Array) => {
                Ok(Self::Minus)
            }
            (Self::Minus, b'1') => Ok(Self::MinusOne),
            (Self::Start, b'0'..=b'9') => Ok(Self::Digits(usize::from(byte - b'0'))),
            (Self::Digits(n @ 1..), b'0'..=b'9') => n
                .checked_mul(10)
                .and_then(|n| n.checked_add(usize::from(byte - b'0')))
                .map(Self::Digits)
                .ok_or(ProtocolError::FrameTooLong),
            (Self::Start | Self::Minus | Self::MinusOne | Self::Digits(_), _) => {
                Err(ProtocolError::Length)
            }
        }
    }

    const fn lexeme(self, kind: FrameKind) -> Result<Lexeme, ProtocolError> {
        match (self, kind) {
            (Self::MinusOne, _) => Ok(Lexeme::Line),
            (Self::Digits(0), FrameKind::Push) => Err(ProtocolError::EmptyPush),
            (Self::Digits(..VERBATIM_LEN_MIN), FrameKind::Verbatim) => Err(ProtocolError::Verbatim),
            (Self::Digits(n), _) => Ok(Lexeme::Header(kind, n)),
            (Self::Start | Self::Minus, _) => Err(ProtocolError::Length),
        }
    }
}
