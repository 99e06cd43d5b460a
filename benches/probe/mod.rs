//! The yardstick: N non-blocking sockets, prebuilt bytes, no abstraction.
//!
//! It does what any Redlock client has to do and nothing else: writes the SET to every node, reads
//! until a quorum has answered, and does the same with the compare-and-delete. It checks no reply
//! beyond its length, keeps no votes, no deadline and no list of what is pending, and trusts every
//! node. Answers of stragglers are read with the next pass, as Redbolt does.

use std::io::{self, Read, Write};
use std::time::Duration;

use redbolt::mio::net::TcpStream;
use redbolt::mio::{Events, Interest, Poll, Token};

pub(crate) struct Probe {
    poll: Poll,
    events: Events,
    sockets: Vec<TcpStream>,
    /// Bytes each node still owes.
    owed: Vec<usize>,
    quorum: usize,
    is_spinning: bool,
    command: Vec<u8>,
    buffer: [u8; 4096],
}

const TOKEN: &[u8; 40] = b"00112233445566778899aabbccddeeff00112233";

impl Probe {
    /// Connects to `addresses` (`host:port`), which must speak RESP2 and DELIFEQ.
    pub(crate) fn connect(addresses: &[String], is_spinning: bool) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut sockets = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            sockets.push(stream);
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(64),
            owed: vec![0; sockets.len()],
            quorum: sockets.len() / 2 + 1,
            sockets,
            is_spinning,
            command: Vec::new(),
            buffer: [0; 4096],
        })
    }

    /// Prepares the bytes of a SET; not part of what is measured.
    pub(crate) fn prepare_set(&mut self, key: &[u8; 22]) {
        self.command.clear();
        self.command.extend_from_slice(b"*6\r\n$3\r\nSET\r\n$22\r\n");
        self.command.extend_from_slice(key);
        self.command.extend_from_slice(b"\r\n$40\r\n");
        self.command.extend_from_slice(TOKEN);
        self.command.extend_from_slice(b"\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n");
    }

    /// Prepares the bytes of its compare-and-delete.
    pub(crate) fn prepare_release(&mut self, key: &[u8; 22]) {
        self.command.clear();
        self.command.extend_from_slice(b"*3\r\n$7\r\nDELIFEQ\r\n$22\r\n");
        self.command.extend_from_slice(key);
        self.command.extend_from_slice(b"\r\n$40\r\n");
        self.command.extend_from_slice(TOKEN);
        self.command.extend_from_slice(b"\r\n");
    }

    /// Sends what is prepared to all nodes and reads until a quorum has answered with `reply_len`
    /// bytes.
    pub(crate) fn round(&mut self, reply_len: usize) -> io::Result<()> {
        for (socket, owed) in self.sockets.iter_mut().zip(&mut self.owed) {
            let _ = socket.write(&self.command)?;
            *owed += reply_len;
        }
        let timeout = self.is_spinning.then_some(Duration::ZERO);
        loop {
            let answered = self.owed.iter().filter(|owed| **owed == 0).count();
            if answered >= self.quorum {
                return Ok(());
            }
            self.poll.poll(&mut self.events, timeout)?;
            for event in &self.events {
                let index = event.token().0;
                let (Some(socket), Some(owed)) =
                    (self.sockets.get_mut(index), self.owed.get_mut(index))
                else {
                    continue;
                };
                match socket.read(&mut self.buffer) {
                    Ok(len) => *owed = owed.saturating_sub(len),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
