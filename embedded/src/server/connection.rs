//! [`Connection`]: one client's socket and the bytes still to be written to it.
//!
//! Layer: above the sans-IO line. A node's thread owns it.

use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::TcpStream;

use crate::model::{Progress, Server, Session};

/// A client of one node.
pub(super) struct Connection {
    stream: TcpStream,
    session: Session,
    out: Vec<u8>,
    written: usize,
    /// Readiness is reported once and holds until a read finds the socket empty.
    pub(super) readable: bool,
    /// The peer has closed: reads go on to the end, however short they are.
    pub(super) read_closed: bool,
    /// The model closed the session: the node writes pending replies, and reads nothing more.
    closing: bool,
    /// The connection is in the node's list of connections to serve.
    pub(super) listed: bool,
}

/// The next step of a connection after the node served it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits for its next event.
    Waits,
    /// There may be more to read: the node serves it again after the others.
    Again,
    /// It has ended.
    Over,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, session: Session) -> Self {
        Self {
            stream,
            session,
            out: Vec::new(),
            written: 0,
            readable: false,
            read_closed: false,
            closing: false,
            listed: false,
        }
    }

    pub(super) fn session_id(&self) -> u64 {
        self.session.id()
    }

    /// Ends the connection; its session goes back to the model.
    pub(super) fn into_session(self) -> Session {
        self.session
    }

    /// Reads the bytes in the socket and runs them. The replies wait for [`write`](Self::write).
    pub(super) fn read(&mut self, server: &mut Server, scratch: &mut [u8]) -> Fate {
        for _ in 0..READS_PER_PASS {
            if !self.readable || self.closing {
                break;
            }
            match self.stream.read(scratch) {
                Ok(0) => {
                    // The client has closed its side: the node writes what the socket takes of the
                    // pending replies, and no more.
                    let _ = self.flush();
                    return Fate::Over;
                }
                Ok(len) => {
                    self.readable = len == scratch.len() || self.read_closed;
                    let input = scratch.get(..len).unwrap_or(b"");
                    if self.run(server, input).is_err() {
                        return Fate::Over;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Fate::Over,
            }
        }
        if self.readable && !self.closing { Fate::Again } else { Fate::Waits }
    }

    /// Appends a message that answers no request.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes as much as the socket takes.
    pub(super) fn write(&mut self) -> Fate {
        match self.flush() {
            Err(_) => Fate::Over,
            Ok(()) if self.closing && self.owed() == 0 => Fate::Over,
            Ok(()) => Fate::Waits,
        }
    }

    fn run(&mut self, server: &mut Server, mut input: &[u8]) -> io::Result<()> {
        loop {
            let now = super::clock::now();
            match server.execute(&mut self.session, input, now, &mut self.out) {
                Progress::Idle => return Ok(()),
                Progress::Close => {
                    self.closing = true;
                    return Ok(());
                }
                Progress::More => {
                    input = b"";
                    self.flush()?;
                }
            }
        }
    }

    /// Writes until nothing is left or the socket takes no more.
    fn flush(&mut self) -> io::Result<()> {
        while let Some(owed) = self.out.get(self.written..).filter(|owed| !owed.is_empty()) {
            match self.stream.write(owed) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => self.written += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.keep_rest(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        if self.out.capacity() > KEPT_CAPACITY_MAX {
            self.out = Vec::new();
        }
        Ok(())
    }

    /// The socket is full. The node disconnects a client that leaves more than `OWED_LEN_MAX` bytes
    /// unread.
    fn keep_rest(&mut self) -> io::Result<()> {
        if self.owed() > OWED_LEN_MAX {
            return Err(ErrorKind::OutOfMemory.into());
        }
        if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    fn owed(&self) -> usize {
        self.out.len() - self.written
    }
}

/// The number is so low that one busy connection does not starve the others.
const READS_PER_PASS: usize = 4;
/// Replies that may wait for a client to read them: the hard limit that real servers set for
/// subscribers.
const OWED_LEN_MAX: usize = 32 << 20;
const KEPT_CAPACITY_MAX: usize = 256 << 10;
