//! The number lines of RESP as small automata, fed one byte at a time.
//!
//! Layer: bottom, inside `resp`. Only `grammar` calls it.
//!
//! # Contract
//!
//! - `push` takes the next byte, or fails if no number continues with it. `is_complete` tells
//!   whether the line may end here. Neither looks back, so a number cut anywhere costs no rescan.
//!
//! # Invariants
//!
//! - [`Integer`] accepts the same lines as `i64::from_str` within 20 characters
//!   (`integers_are_those_that_fit_64_bits`).

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

/// `(` lines: an optional sign and digits, never converted.
#[derive(Clone, Copy, Debug)]
pub(super) enum BigNumber {
    Start,
    Sign,
    Digits,
}

impl BigNumber {
    pub(super) const fn push(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Start, b'+' | b'-') => Some(Self::Sign),
            (Self::Start | Self::Sign | Self::Digits, b'0'..=b'9') => Some(Self::Digits),
            (Self::Start | Self::Sign | Self::Digits, _) => None,
        }
    }

    pub(super) const fn is_complete(self) -> bool {
        matches!(self, Self::Digits)
    }
}

/// `,` lines: `[+-]digits[.digits][e[+-]digits]`, or `inf` or `nan` with an optional sign.
#[derive(Clone, Copy, Debug)]
pub(super) enum Double {
    Start,
    Sign,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    /// The rest of `inf` or `nan`.
    Word(&'static [u8]),
}

impl Double {
    pub(super) fn push(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start, b'+' | b'-') => Self::Sign,
            (Self::Start | Self::Sign, b'i') => Self::Word(b"nf"),
            (Self::Start | Self::Sign, b'n') => Self::Word(b"an"),
            (Self::Start | Self::Sign | Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Whole | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Self::ExponentDigits
            }
            (Self::Word(rest), _) => {
                let (&next, rest) = rest.split_first()?;
                return (byte == next).then_some(Self::Word(rest));
            }
            (
                Self::Start
                | Self::Sign
                | Self::Whole
                | Self::Point
                | Self::Fraction
                | Self::Exponent
                | Self::ExponentSign
                | Self::ExponentDigits,
                _,
            ) => return None,
        })
    }

    pub(super) const fn is_complete(self) -> bool {
        match self {
            Self::Whole | Self::Fraction | Self::ExponentDigits => true,
            Self::Word(rest) => rest.is_empty(),
            Self::Start | Self::Sign | Self::Point | Self::Exponent | Self::ExponentSign => false,
        }
    }
}
