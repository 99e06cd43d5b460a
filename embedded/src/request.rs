//! Incremental parser of the request stream: arrays of bulk strings, and inline commands.
//!
//! Layer: sans-IO. `model` calls it for every chunk that a connection delivers.
//!
//! # Contract
//!
//! - An incomplete request is [`Parsed::Partial`]; no part of it runs.
//! - Broken framing is [`Parsed::Broken`] and final: the caller writes the error and closes.
//! - A declared count or length reserves no memory; work is O(bytes) under any chunking.

use std::ops::Range;

/// A server's present rules for a client's input.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Whether the session has a user; without a user, a client may send only small requests.
    pub(crate) authenticated: bool,
    /// The two bytes behind a bulk string must be CR LF (Valkey 9.1).
    pub(crate) strict_crlf: bool,
}

/// Outcome of [`Parser::next`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A request is ready: see [`Parser::args`].
    Request,
    /// More bytes are needed.
    Partial,
    /// Framing is lost: the server answers `-ERR Protocol error: ` and this reason.
    Broken(Broken),
}

/// How framing was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A fixed text.
    Text(&'static str),
    /// This byte came instead of a bulk string.
    NotBulk(u8),
}

/// The request under construction and the bytes behind it.
#[derive(Clone, Default)]
pub(crate) struct Parser {
    buffer: Vec<u8>,
    /// Where the next step begins.
    at: usize,
    /// How many bytes from `at` hold no line end.
    searched: usize,
    /// How many bulk strings of this request are still to come.
    left: usize,
    bulk: Option<usize>,
    spans: Vec<Range<usize>>,
    /// An inline request, unquoted; its spans point in here instead of the buffer.
    inline: Vec<u8>,
    is_inline: bool,
    done: bool,
}

/// One request's arguments, the command's name first.
#[derive(Clone, Copy)]
pub(crate) struct Args<'buf> {
    bytes: &'buf [u8],
    spans: &'buf [Range<usize>],
}

impl<'buf> Args<'buf> {
    pub(crate) fn new(bytes: &'buf [u8], spans: &'buf [Range<usize>]) -> Self {
        Self { bytes, spans }
    }

    /// How many arguments there are, including the name.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Argument `index`; empty if the request has fewer arguments.
    pub(crate) fn at(&self, index: usize) -> &'buf [u8] {
        self.get(index).unwrap_or(b"")
    }

    pub(crate) fn get(&self, index: usize) -> Option<&'buf [u8]> {
        self.spans.get(index).and_then(|span| self.bytes.get(span.clone()))
    }

    /// The arguments from `first` on.
    pub(crate) fn from(&self, first: usize) -> impl Iterator<Item = &'buf [u8]> + use<'buf> {
        let bytes = self.bytes;
        let spans = self.spans.get(first..).unwrap_or(&[]);
        spans.iter().filter_map(move |span| bytes.get(span.clone()))
    }
}

impl Parser {
    /// Appends the bytes that a connection delivered.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The request that the last [`Parser::next`] found.
    pub(crate) fn args(&self) -> Args<'_> {
        let bytes = if self.is_inline { &self.inline } else { &self.buffer };
        Args::new(bytes, &self.spans)
    }

    /// Looks for the next whole request; forgets the previous one.
    pub(crate) fn next(&mut self, rules: Rules) -> Parsed {
        if self.done {
            self.done = false;
            self.spans.clear();
            self.is_inline = false;
            self.reclaim();
        }
        loop {
            let found = if self.left > 0 { self.bulks(rules) } else { self.header(rules) };
            match found {
                Ok(Step::Again) => {}
                Ok(Step::Ready) => {
                    self.done = true;
                    return Parsed::Request;
                }
                Ok(Step::Wait) => return Parsed::Partial,
                Err(broken) => return Parsed::Broken(broken),
            }
        }
    }

    /// Drops consumed bytes once they are the larger part: so it moves fewer bytes than it drops.
    fn reclaim(&mut self) {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
            if self.buffer.capacity() > KEPT_CAPACITY_MAX {
                self.buffer = Vec::new();
            }
        } else if self.at > self.buffer.len() / 2 && self.at > 4096 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
    }

    fn header(&mut self, rules: Rules) -> Result<Step, Broken> {
        match self.buffer.get(self.at) {
            None => Ok(Step::Wait),
            Some(b'*') => self.array_header(rules),
            Some(_) => self.inline_request(),
        }
    }

    fn array_header(&mut self, rules: Rules) -> Result<Step, Broken> {
        let Some(line) = self.line(b'\r', 2, "too big mbulk count string")? else {
            return Ok(Step::Wait);
        };
        let count = self.number(line.start + 1..line.end);
        let count = count.filter(|count| *count <= i64::from(i32::MAX));
        let count = count.ok_or(Broken::Text("invalid multibulk length"))?;
        if count > 10 && !rules.authenticated {
            return Err(Broken::Text("unauthenticated multibulk length"));
        }
        self.left = usize::try_from(count).unwrap_or(0);
        Ok(Step::Again)
    }

    fn bulks(&mut self, rules: Rules) -> Result<Step, Broken> {
        let Some(len) = self.bulk else {
            return self.bulk_header(rules);
        };
        let end = self.at + len;
        let Some(tail) = self.buffer.get(end..end + 2) else {
            return Ok(Step::Wait);
        };
        if rules.strict_crlf && tail != b"\r\n" {
            return Err(Broken::Text("invalid CRLF in request"));
        }
        self.spans.push(self.at..end);
        self.at = end + 2;
        self.bulk = None;
        self.left -= 1;
        Ok(if self.left == 0 { Step::Ready } else { Step::Again })
    }

    fn bulk_header(&mut self, rules: Rules) -> Result<Step, Broken> {
        let Some(line) = self.line(b'\r', 2, "too big bulk count string")? else {
            return Ok(Step::Wait);
        };
        match self.buffer.get(line.start) {
            Some(b'$') => {}
            other => return Err(Broken::NotBulk(other.copied().unwrap_or(b'\r'))),
        }
        let len = self.number(line.start + 1..line.end).and_then(|len| usize::try_from(len).ok());
        let len = len.filter(|len| *len <= BULK_LEN_MAX);
        let len = len.ok_or(Broken::Text("invalid bulk length"))?;
        if len > 16_384 && !rules.authenticated {
            return Err(Broken::Text("unauthenticated bulk length"));
        }
        self.bulk = Some(len);
        Ok(Step::Again)
    }

    fn inline_request(&mut self) -> Result<Step, Broken> {
        let Some(line) = self.line(b'\n', 1, "too big inline request")? else {
            return Ok(Step::Wait);
        };
        self.inline.clear();
        let text = self.buffer.get(line).unwrap_or(b"");
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        split_inline(text, &mut self.inline, &mut self.spans)?;
        self.is_inline = !self.spans.is_empty();
        Ok(if self.is_inline { Step::Ready } else { Step::Again })
    }

    /// Takes the present line once all `tail` bytes of its line end have come.
    fn line(
        &mut self,
        end: u8,
        tail: usize,
        too_big: &'static str,
    ) -> Result<Option<Range<usize>>, Broken> {
        let from = self.at + self.searched;
        let rest = self.buffer.get(from..).unwrap_or(b"");
        let Some(offset) = rest.iter().position(|byte| *byte == end) else {
            self.searched = self.buffer.len() - self.at;
            return if self.searched > LINE_LEN_MAX {
                Err(Broken::Text(too_big))
            } else {
                Ok(None)
            };
        };
        let line = self.at..from + offset;
        if line.end + tail > self.buffer.len() {
            return Ok(None);
        }
        self.at = line.end + tail;
        self.searched = 0;
        Ok(Some(line))
    }

    fn number(&self, span: Range<usize>) -> Option<i64> {
        number(self.buffer.get(span)?)
    }
}

enum Step {
    Again,
    Ready,
    Wait,
}

/// A decimal integer as servers read it: no plus sign, leading zero or space.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match text {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if !matches!(digits, [b'1'..=b'9', ..]) {
        return None;
    }
    // Below zero there is one number more.
    let below = digits.iter().try_fold(0_i64, |below, byte| {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        below.checked_mul(10)?.checked_sub(digit).filter(|_| digit <= 9)
    })?;
    if is_negative { Some(below) } else { below.checked_neg() }
}

/// Splits at white space; quoted parts lose their quotes. Escapes are not interpreted: inline
/// commands are for people at a terminal, and clients send arrays.
fn split_inline(
    text: &[u8],
    out: &mut Vec<u8>,
    spans: &mut Vec<Range<usize>>,
) -> Result<(), Broken> {
    let mut bytes = text.iter().copied().peekable();
    loop {
        while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(first) = bytes.peek().copied() else {
            return Ok(());
        };
        let start = out.len();
        if first == b'"' || first == b'\'' {
            bytes.next();
            out.extend(std::iter::from_fn(|| bytes.next_if(|byte| *byte != first)));
            let closed = bytes.next().is_some();
            if !closed || bytes.peek().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                return Err(Broken::Text("unbalanced quotes in request"));
            }
        } else {
            out.extend(std::iter::from_fn(|| bytes.next_if(|byte| !byte.is_ascii_whitespace())));
        }
        spans.push(start..out.len());
    }
}

/// A real server takes 512 MB; a lock client never comes near either limit.
const BULK_LEN_MAX: usize = 16 << 20;
const LINE_LEN_MAX: usize = 64 << 10;
/// A buffer that grew beyond this for a large request is freed.
const KEPT_CAPACITY_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests;
