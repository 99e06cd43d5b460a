//! [`Decoder`]: finds and validates the frame at the head of a buffer, resumable at any byte.
//!
//! Layer: bottom, inside `resp`. `node` calls it with the rest of a read that [`quick`] has
//! declined.
//!
//! # Contract
//!
//! - The decoder owns no bytes. The caller keeps an unfinished frame contiguous and calls again
//!   with more bytes behind it. The scan continues where it stopped.
//! - The decoder returns a frame whole or not at all. Attributes are part of the frame that they
//!   precede.
//! - A declared size costs nothing. A size that cannot fit the cap is an error at once.
//! - After an error every further call returns that error.
//!
//! # Invariants
//!
//! - `at` never moves back within a frame, and never past `frame_len_max`
//!   (`work_is_linear_under_any_chunking`, `a_frame_may_fill_the_size_cap_but_not_pass_it`).
//! - `levels[..=depth]` counts the elements that each open aggregate still lacks; the last is never
//!   zero between elements.
//!
//! [`quick`]: fn@super::quick

use std::fmt;

use super::error::ProtocolError;
use super::grammar::{FrameKind, Lexeme, Next, Position, Unit};
use super::reply::Reply;

/// The deepest nesting that a caller can configure: the size of the decoder's own stack.
const DEPTH_CAPACITY: usize = 16;
/// No element is shorter than `_\r\n`.
const ELEMENT_LEN_MIN: usize = 3;

/// How large a reply the decoder accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limits {
    /// The longest frame in bytes, its attributes included. Default 1 MiB.
    pub(crate) frame_len_max: usize,
    /// The deepest nesting of aggregates that have elements. Default 8; more than 16 is 16.
    pub(crate) depth_max: usize,
}

impl Limits {
    /// 1 MiB, far above the longest `INFO`, and 8 levels, far above any reply to a lock command.
    pub(crate) const DEFAULT: Self = Self { frame_len_max: 1 << 20, depth_max: 8 };

    /// For people's questions, such as a list of all clients of a node: 16 MiB.
    pub(crate) const LONG: Self = Self { frame_len_max: 16 << 20, depth_max: 8 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Resumable scanner for one connection. Fixed size, no heap.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    limits: Limits,
    scan: Scan,
    failed: Option<ProtocolError>,
}

impl Decoder {
    /// A decoder at the start of a connection.
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { limits, scan: Scan::START, failed: None }
    }

    /// Accepts longer frames, or only shorter ones again.
    pub(crate) const fn set_frame_len_max(&mut self, len: usize) {
        self.limits.frame_len_max = len;
    }

    /// The frame that starts at `buf[0]`, or `None` when more bytes are needed.
    ///
    /// After a frame the decoder is ready for the next one: take [`Frame::len`] bytes off the
    /// buffer. After `None` call again with the same bytes and more behind them.
    pub(crate) fn frame<'b>(&mut self, buf: &'b [u8]) -> Result<Option<Frame<'b>>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.run(buf) {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => {
                let Scan { push, reply_at, .. } = self.scan;
                self.scan.reset();
                Ok(Some(Frame { bytes, reply_at, push }))
            }
            Err(error) => {
                self.failed = Some(error);
                Err(error)
            }
        }
    }

    /// How many bytes the decoder has looked at, including repeated looks.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) const fn visited(&self) -> usize {
        self.scan.visited
    }

    /// Continues the scan. Returns the bytes of the frame once it is complete.
    fn run<'b>(&mut self, buf: &'b [u8]) -> Result<Option<&'b [u8]>, ProtocolError> {
        let end = buf.len().min(self.limits.frame_len_max);
        loop {
            if self.scan.at >= self.limits.frame_len_max {
                return Err(ProtocolError::FrameTooLong);
            }
            let Some(rest @ [byte, ..]) = buf.get(self.scan.at..end) else {
                return Ok(None);
            };
            let complete = match self.scan.position {
                Position::Payload { left } => {
                    self.scan.skip_payload(left, rest.len());
                    false
                }
                Position::Text { left } => {
                    self.scan.skip_text(left, rest);
                    false
                }
                Position::Type
                | Position::TextEnd
                | Position::Null
                | Position::Boolean
                | Position::Integer(_)
                | Position::Number { .. }
                | Position::Length(..)
                | Position::Format { .. }
                | Position::Cr(_)
                | Position::Lf(_) => self.scan.byte(*byte, self.limits)?,
            };
            if complete {
                return Ok(buf.get(..self.scan.at));
            }
        }
    }
}

/// How far the present frame has been scanned.
#[derive(Clone, Debug)]
struct Scan {
    /// The decoder never looks at bytes before this one again.
    at: usize,
    position: Position,
    /// How many elements the frame (0) and each open aggregate (1..) still lack. For its parent an
    /// aggregate counts as complete once it is open; an attribute does not count at all.
    levels: [usize; DEPTH_CAPACITY + 1],
    depth: usize,
    /// Where the reply begins behind its attributes, and whether it is a push.
    reply_at: usize,
    push: bool,
    /// Bytes looked at, including those of earlier frames.
    #[cfg(any(test, feature = "fuzzing"))]
    visited: usize,
}

impl Scan {
    const START: Self = {
        let mut levels = [0; DEPTH_CAPACITY + 1];
        levels[0] = 1;
        Self {
            at: 0,
            position: Position::Type,
            levels,
            depth: 0,
            reply_at: 0,
            push: false,
            #[cfg(any(test, feature = "fuzzing"))]
            visited: 0,
        }
    };

    fn reset(&mut self) {
        self.at = 0;
        self.position = Position::Type;
        self.levels[0] = 1;
        self.depth = 0;
    }

    fn skip_payload(&mut self, left: usize, available: usize) {
        let skipped = left.min(available);
        self.at += skipped;
        self.position = Position::payload(left - skipped);
    }

    fn skip_text(&mut self, left: usize, rest: &[u8]) {
        let line = rest.get(..left).unwrap_or(rest);
        let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let skipped = end.unwrap_or(line.len());
        #[cfg(any(test, feature = "fuzzing"))]
        {
            self.visited += skipped + usize::from(end.is_some());
        }
        self.at += skipped;
        self.position = match (end, left - skipped) {
            (Some(_), _) | (None, 0) => Position::TextEnd,
            (None, left) => Position::Text { left },
        };
    }

    /// Takes one byte. Returns whether it completes the frame.
    fn byte(&mut self, byte: u8, limits: Limits) -> Result<bool, ProtocolError> {
        #[cfg(any(test, feature = "fuzzing"))]
        {
            self.visited += 1;
        }
        if matches!(self.position, Position::Type) {
            if self.depth == 0 {
                // Set again after an attribute.
                self.reply_at = self.at;
                self.push = byte == b'>';
            } else if byte == b'>' {
                return Err(ProtocolError::NestedPush);
            }
        }
        let next = self.position.next(byte)?;
        self.at += 1;
        match next {
            Next::Position(position) => {
                self.position = position;
                Ok(false)
            }
            Next::Lexeme(lexeme) => self.lexeme(lexeme, limits),
        }
    }

    /// Takes a line ending. Returns whether it completes the frame.
    fn lexeme(&mut self, lexeme: Lexeme, limits: Limits) -> Result<bool, ProtocolError> {
        self.position = match lexeme {
            Lexeme::Line => {
                self.count_element();
                self.check_room(0, limits)?;
                Position::Type
            }
            Lexeme::Payload => Position::Type,
            Lexeme::Header(kind, n) => match kind.unit() {
                Unit::Nothing | Unit::Bytes => {
                    self.count_element();
                    self.check_room(n.saturating_add(2), limits)?;
                    if kind == FrameKind::Verbatim {
                        Position::Format { seen: 0, len: n }
                    } else {
                        Position::payload(n)
                    }
                }
                Unit::Elements | Unit::Pairs => {
                    if kind != FrameKind::Attribute {
                        self.count_element();
                    }
                    self.open(kind.elements(n), limits)?;
                    Position::Type
                }
            },
        };
        if !matches!(self.position, Position::Type) {
            return Ok(false);
        }
        while self.depth > 0 && self.lacking() == 0 {
            self.depth -= 1;
        }
        Ok(self.depth == 0 && self.lacking() == 0)
    }

    /// Begins an aggregate. An aggregate without elements needs no level.
    fn open(&mut self, elements: usize, limits: Limits) -> Result<(), ProtocolError> {
        if elements > 0 {
            let depth = self.depth + 1;
            if depth > limits.depth_max {
                return Err(ProtocolError::TooDeep);
            }
            *self.levels.get_mut(depth).ok_or(ProtocolError::TooDeep)? = elements;
            self.depth = depth;
        }
        self.check_room(0, limits)
    }

    /// Whether `bytes` more and all elements still lacking can fit the size cap.
    fn check_room(&self, bytes: usize, limits: Limits) -> Result<(), ProtocolError> {
        self.levels
            .iter()
            .take(self.depth + 1)
            .try_fold(0_usize, |sum, &elements| sum.checked_add(elements))
            .and_then(|elements| elements.checked_mul(ELEMENT_LEN_MIN))
            .and_then(|declared| declared.checked_add(bytes)?.checked_add(self.at))
            .filter(|&len| len <= limits.frame_len_max)
            .map_or(Err(ProtocolError::FrameTooLong), |_| Ok(()))
    }

    /// Elements that the innermost open aggregate, or the frame, still lacks.
    fn lacking(&self) -> usize {
        self.levels.get(self.depth).copied().unwrap_or(0)
    }

    fn count_element(&mut self) {
        if let Some(lacking) = self.levels.get_mut(self.depth) {
            *lacking = lacking.saturating_sub(1);
        }
    }
}

/// One whole, validated frame: a reply or a push, with the attributes in front of it.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Frame<'b> {
    bytes: &'b [u8],
    reply_at: usize,
    push: bool,
}

impl<'b> Frame<'b> {
    /// Bytes to take off the buffer.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The frame as received.
    pub(crate) const fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// Whether this is a push, which answers no request.
    pub(crate) const fn is_push(&self) -> bool {
        self.push
    }

    /// The reply of the frame, without its attributes.
    pub(crate) fn reply(&self) -> Reply<'b> {
        // The scan has validated the bytes. If the scan were wrong, this empty error would decide
        // nothing. A null would be an answer.
        self.bytes.get(self.reply_at..).and_then(Reply::parse).unwrap_or(Reply::Error(b""))
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("len", &self.len()).field("reply", &self.reply()).finish()
    }
}
