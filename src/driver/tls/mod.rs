//! One TLS session over one TCP connection, with the interface of a non-blocking socket.
//!
//! # Contract
//!
//! - [`TlsStream::write`] reports bytes as taken once all their ciphertext has gone to the socket.
//!   Until then it would block, and the caller repeats it with the same bytes in front.
//! - [`TlsStream::read`] reads the socket once at most. [`io::ErrorKind::Interrupted`] says that
//!   this read gave no plaintext yet. The socket is empty when the read would block, and not
//!   before.
//!
//! # Invariants
//!
//! - A session holds one buffer of output (64 KiB) and one record of input (16 KiB; 64 KiB of
//!   handshake), whatever the peer sends. rustls allocates once for each record.

mod fault;
mod setup;

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::ClientConnection;

pub(super) use fault::cause_of;
pub(super) use setup::{Target, targets};

use fault::{broken, failed};

/// More bytes than any handshake needs.
const HANDSHAKE_LEN_MAX: usize = 256 << 10;

pub(super) struct TlsStream {
    pub(super) tcp: TcpStream,
    session: ClientConnection,
    /// How many of the caller's bytes are encrypted but not yet all sent.
    promised: usize,
    /// How many bytes the handshake has read.
    handshake_len: usize,
    /// The connection is made: from now on only reads and writes show its state. A peer that has
    /// closed the connection has usually sent the cause first.
    is_begun: bool,
}

impl TlsStream {
    pub(super) fn new(tcp: TcpStream, target: &Target) -> io::Result<Self> {
        let config = Arc::clone(&target.config);
        let session = ClientConnection::new(config, target.name.clone()).map_err(failed)?;
        Ok(Self { tcp, session, promised: 0, handshake_len: 0, is_begun: false })
    }

    /// Whether the connection is made, so that the handshake has begun.
    pub(super) const fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Continues the handshake as far as the socket allows. Returns whether it is done.
    pub(super) fn shake_hands(&mut self) -> io::Result<bool> {
        self.is_begun = true;
        loop {
            match self.flush_or_why() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            if !self.session.is_handshaking() {
                return Ok(true);
            }
            match self.receive() {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.handshake_len = self.handshake_len.saturating_add(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.handshake_len > HANDSHAKE_LEN_MAX {
                return Err(failed(rustls::Error::General("an endless handshake".into())));
            }
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.session.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        self.receive()?;
        match self.session.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::Interrupted.into())
            }
            other => other,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.promised == 0 {
            self.flush_or_why()?;
            self.promised = self.session.writer().write(bytes)?;
        }
        self.flush_or_why()?;
        // Never more bytes than the caller has given this time.
        Ok(std::mem::take(&mut self.promised).min(bytes.len()))
    }

    /// Whether bytes wait until the socket takes more.
    pub(super) fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    /// Sends the closing alert, as far as the socket takes it.
    pub(super) fn close(&mut self) {
        self.session.send_close_notify();
        let _ = self.flush();
    }

    /// Reads the socket at most once. Returns how many bytes it read.
    fn receive(&mut self) -> io::Result<usize> {
        let len = self.session.read_tls(&mut self.tcp)?;
        let was_shaking = self.session.is_handshaking();
        let result = self.session.process_new_packets();
        // The session's own answers, such as an alert. The bytes that the socket does not take now
        // go in front of the next ones.
        let _ = self.flush();
        match result {
            Ok(_) => Ok(len),
            Err(error) if was_shaking => Err(failed(error)),
            Err(error) => Err(broken(error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.tcp) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// As `flush`. A peer that has closed has usually sent the cause first, so a failed write reads
    /// it.
    fn flush_or_why(&mut self) -> io::Result<()> {
        let Err(error) = self.flush() else { return Ok(()) };
        if error.kind() != io::ErrorKind::WouldBlock
            && let Err(told) = self.receive()
            && told.kind() == io::ErrorKind::InvalidData
        {
            return Err(told);
        }
        Err(error)
    }
}
