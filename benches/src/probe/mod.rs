//! The yardstick: N non-blocking sockets, prebuilt bytes, no abstraction.
//!
//! It does what every Redlock client has to do, and nothing else: it writes each command to every
//! node in one write, reads until a quorum has answered, and goes on.
//! It counts replies by their lines and reads none of them. It keeps no votes, no deadline and no
//! list of pending commands, and trusts every node. It reads the answers of stragglers in a later
//! pass, as Redbolt does.

mod commands;

use std::io::{self, Read, Write};
use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

use redbolt::driver::mio::net::{TcpStream, UnixStream};
use redbolt::driver::mio::{Events, Interest, Poll, Token};
use redbolt::{IdleStrategy, now};
#[cfg(feature = "tls")]
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

pub use commands::Commands;

pub struct Probe {
    poll: Poll,
    events: Events,
    links: Vec<Link>,
    quorum: usize,
    wait: IdleStrategy,
    /// Commands written to every node so far.
    sent: u64,
    buffer: Box<[u8]>,
}

/// One connection to a node.
pub struct Link {
    socket: Socket,
    /// Lines received so far: the commands answered, where one line answers each.
    pub answered: u64,
    /// Bytes that the socket did not take.
    unsent: Vec<u8>,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// TLS by rustls' own stream.
    #[cfg(feature = "tls")]
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

const BUFFER_LEN: usize = 64 << 10;

impl Probe {
    /// Connects to nodes (`host:port` or a path), which must support RESP2 and DELIFEQ.
    pub fn connect(addresses: &[String], wait: IdleStrategy) -> io::Result<Self> {
        Self::over(addresses, wait, Socket::connect)
    }

    /// Connects over TLS to nodes whose name is `localhost`.
    #[cfg(feature = "tls")]
    pub fn connect_tls(
        addresses: &[String],
        config: &Arc<ClientConfig>,
        wait: IdleStrategy,
    ) -> io::Result<Self> {
        Self::over(addresses, wait, |address, poll, token| {
            Socket::connect_tls(address, config, poll, token)
        })
    }

    fn over(
        addresses: &[String],
        wait: IdleStrategy,
        connect: impl Fn(&str, &Poll, Token) -> io::Result<Socket>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut links = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            links.push(Link::new(connect(address, &poll, Token(index))?));
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(64),
            quorum: links.len() / 2 + 1,
            links,
            wait,
            sent: 0,
            buffer: vec![0; BUFFER_LEN].into_boxed_slice(),
        })
    }

    /// Writes one command to every node and reads until a quorum has answered it.
    pub fn round(&mut self, command: &[u8]) -> io::Result<()> {
        self.round_of(command, 1)
    }

    /// Writes `count` commands to every node at once and reads until a quorum has answered all of
    /// them.
    pub fn round_of(&mut self, commands: &[u8], count: usize) -> io::Result<()> {
        self.send(commands, count as u64)?;
        while self.decided() < self.sent {
            self.pass()?;
        }
        Ok(())
    }

    /// Runs `cycles` cycles of acquire and release, always `in_flight` of them under way. When a
    /// quorum has answered a SET, the probe sends its release; when it has answered that, the next
    /// SET.
    pub fn window(
        &mut self,
        commands: &mut Commands,
        in_flight: usize,
        cycles: usize,
    ) -> io::Result<()> {
        // Otherwise the probe would count an earlier window's answers for this window.
        while self.links.iter().any(|link| link.answered < self.sent) {
            self.pass()?;
        }
        let (mut to_begin, mut to_end) = (cycles, cycles);
        let first = in_flight.min(to_begin);
        to_begin -= first;
        for _ in 0..first {
            commands.set();
        }
        self.send(commands.written(), first as u64)?;
        commands.clear();
        let mut taken = self.sent - first as u64;
        while to_end > 0 {
            self.pass()?;
            let decided = self.decided();
            let mut count = 0;
            while taken < decided {
                taken += 1;
                // All nodes answer in the order of the commands.
                if commands.was_set() {
                    commands.release();
                    count += 1;
                } else {
                    to_end -= 1;
                    if to_begin > 0 {
                        to_begin -= 1;
                        commands.set();
                        count += 1;
                    }
                }
            }
            if count > 0 {
                self.send(commands.written(), count)?;
                commands.clear();
            }
        }
        Ok(())
    }

    /// How many commands a quorum has answered.
    #[inline]
    fn decided(&self) -> u64 {
        let mut counts = [0; 32];
        for (count, link) in counts.iter_mut().zip(&self.links) {
            *count = link.answered;
        }
        let counts = counts.get_mut(..self.links.len()).unwrap_or_default();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.get(self.quorum - 1).copied().unwrap_or(0)
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], count: u64) -> io::Result<()> {
        self.sent += count;
        for link in &mut self.links {
            link.send(bytes)?;
        }
        Ok(())
    }

    /// Waits for readiness and reads what is ready.
    #[inline]
    fn pass(&mut self) -> io::Result<()> {
        wait_for(&mut self.poll, &mut self.events, self.wait, None)?;
        for event in &self.events {
            let Some(link) = self.links.get_mut(event.token().0) else { continue };
            link.receive(&mut self.buffer, |_| {})?;
            if !link.unsent.is_empty() {
                link.send(&[])?;
            }
        }
        Ok(())
    }
}

/// Waits like a client of Redbolt, until something is ready or `limit` is over.
#[inline]
pub fn wait_for(
    poll: &mut Poll,
    events: &mut Events,
    wait: IdleStrategy,
    limit: Option<Duration>,
) -> io::Result<()> {
    let ended = match wait {
        IdleStrategy::Spin => poll.poll(events, Some(Duration::ZERO)),
        IdleStrategy::SpinThenPark(spin) => {
            let end = now() + spin;
            loop {
                let polled = poll.poll(events, Some(Duration::ZERO));
                if polled.is_err() || !events.is_empty() {
                    break polled;
                }
                std::thread::yield_now();
                if end <= now() {
                    break poll.poll(events, limit);
                }
            }
        }
        IdleStrategy::Park | _ => poll.poll(events, limit),
    };
    match ended {
        // A signal interrupted the call: there are no events.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        ended => ended,
    }
}

impl Link {
    pub fn connect(address: &str, poll: &Poll, token: Token) -> io::Result<Self> {
        Ok(Self::new(Socket::connect(address, poll, token)?))
    }

    const fn new(socket: Socket) -> Self {
        Self { socket, answered: 0, unsent: Vec::new() }
    }

    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.unsent.is_empty() {
            match self.socket.write(bytes) {
                Ok(len) if len == bytes.len() => return Ok(()),
                Ok(len) => self.unsent.extend_from_slice(bytes.get(len..).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(bytes);
                }
                Err(error) => return Err(error),
            }
            return Ok(());
        }
        self.unsent.extend_from_slice(bytes);
        match self.socket.write(&self.unsent) {
            Ok(len) => drop(self.unsent.drain(..len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads the bytes that are there, and shows them to `see`.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8], mut see: impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            let len = match self.socket.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let bytes = buffer.get(..len).unwrap_or_default();
            if bytes.starts_with(b"-") {
                return Err(io::Error::other(String::from_utf8_lossy(bytes).into_owned()));
            }
            self.answered += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            see(bytes);
            if len < buffer.len() {
                return Ok(());
            }
        }
    }
}

impl Socket {
    fn connect(address: &str, poll: &Poll, token: Token) -> io::Result<Self> {
        if address.contains('/') {
            let stream = std::os::unix::net::UnixStream::connect(Path::new(address))?;
            stream.set_nonblocking(true)?;
            let mut stream = UnixStream::from_std(stream);
            poll.registry().register(&mut stream, token, Interest::READABLE)?;
            return Ok(Self::Unix(stream));
        }
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, token, Interest::READABLE)?;
        Ok(Self::Tcp(stream))
    }

    #[cfg(feature = "tls")]
    fn connect_tls(
        address: &str,
        config: &Arc<ClientConfig>,
        poll: &Poll,
        token: Token,
    ) -> io::Result<Self> {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut session =
            ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, token, Interest::READABLE)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write(bytes),
        }
    }
}
