//! [`Reply`]: appends replies in RESP2 or RESP3 to the output.
//!
//! Layer: sans-IO. One method per RESP type; only the growth of the output allocates.

use std::io::Write as _;

/// Output of one command.
pub(crate) struct Reply<'out> {
    out: &'out mut Vec<u8>,
    resp3: bool,
}

impl<'out> Reply<'out> {
    pub(crate) fn new(out: &'out mut Vec<u8>, resp3: bool) -> Self {
        Self { out, resp3 }
    }

    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error with a fixed text, its code first: `ERR syntax error`.
    pub(crate) fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// An error that echoes the client's bytes. Line ends in it become spaces, and those at its end
    /// are dropped.
    pub(crate) fn error_bytes(&mut self, text: &[u8]) {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let len = text.iter().rposition(|byte| !is_end(byte)).map_or(0, |last| last + 1);
        self.out.push(b'-');
        for byte in text.iter().take(len) {
            self.out.push(if is_end(byte) { b' ' } else { *byte });
        }
        self.end();
    }

    pub(crate) fn integer(&mut self, value: i64) {
        match value {
            0 => self.out.extend_from_slice(b":0\r\n"),
            1 => self.out.extend_from_slice(b":1\r\n"),
            _ => self.header(b':', value),
        }
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.integer(length(value));
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', length(bytes.len()));
        self.out.extend_from_slice(bytes);
        self.end();
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// A text for people: `INFO`.
    pub(crate) fn verbatim(&mut self, text: &[u8]) {
        if !self.resp3 {
            return self.bulk(text);
        }
        self.header(b'=', length(text.len()) + 4);
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text);
        self.end();
    }

    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn array(&mut self, len: usize) {
        self.header(b'*', length(len));
    }

    /// Opens a map of `len` pairs.
    pub(crate) fn map(&mut self, len: usize) {
        if self.resp3 { self.header(b'%', length(len)) } else { self.array(len * 2) }
    }

    /// Opens a push, which answers no request.
    pub(crate) fn push(&mut self, len: usize) {
        self.header(if self.resp3 { b'>' } else { b'*' }, length(len));
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.out.push(kind);
        self.out.extend_from_slice(text.as_bytes());
        self.end();
    }

    fn header(&mut self, kind: u8, value: i64) {
        self.out.push(kind);
        match u8::try_from(value) {
            // Most lengths are short, and `write!` takes long.
            Ok(digit @ 0..=9) => self.out.push(b'0' + digit),
            Ok(two @ 10..=99) => self.out.extend_from_slice(&[b'0' + two / 10, b'0' + two % 10]),
            // Writing into a vector cannot fail.
            Ok(_) | Err(_) => drop(write!(self.out, "{value}")),
        }
        self.end();
    }

    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

fn length(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// An argument as servers print it: up to its first NUL, and at most `len_max` bytes.
pub(crate) fn printed(arg: &[u8], len_max: usize) -> &[u8] {
    let arg = arg.split(|byte| *byte == 0).next().unwrap_or(b"");
    arg.get(..len_max).unwrap_or(arg)
}
