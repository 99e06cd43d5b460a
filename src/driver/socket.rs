//! One non-blocking socket to a node, TCP or unix.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};

use crate::error::Cause;

/// A peer that acknowledges nothing for this long is gone: the connection is given up.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn connect_tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive =
            TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
        socket.set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
        Ok(Self::Tcp(stream))
    }

    pub(super) fn connect_unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Self::Unix)
    }

    /// Registered for writing too: readiness for it tells that the connection stands.
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => registry.register(stream, token, BOTH),
            Self::Unix(stream) => registry.register(stream, token, BOTH),
        }
    }

    /// Asks to be told when the socket takes more, or not any longer. A unix socket that is watched
    /// for writing wakes its owner each time the peer has read.
    pub(super) fn watch_writable(
        &mut self,
        registry: &Registry,
        token: Token,
        is_wanted: bool,
    ) -> io::Result<()> {
        let interests = if is_wanted { BOTH } else { Interest::READABLE };
        match self {
            Self::Tcp(stream) => registry.reregister(stream, token, interests),
            Self::Unix(stream) => registry.reregister(stream, token, interests),
        }
    }

    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => registry.deregister(stream),
            Self::Unix(stream) => registry.deregister(stream),
        }
    }

    /// Whether the connection stands: `None` while it is being made.
    pub(super) fn finish_connect(&self) -> Option<io::Result<()>> {
        let error = match self {
            Self::Tcp(stream) => stream.take_error(),
            Self::Unix(stream) => stream.take_error(),
        };
        if let Some(error) = error.transpose() {
            return Some(error.and_then(Err));
        }
        let peer = match self {
            Self::Tcp(stream) => stream.peer_addr().map(drop),
            Self::Unix(stream) => stream.peer_addr().map(drop),
        };
        match peer {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            other => Some(other),
        }
    }

    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }

    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// What a socket's error says about the node.
pub(super) fn cause_of(error: &io::Error, is_unix: bool) -> Cause {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Cause::ConnectionRefused,
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if is_unix => Cause::SocketPath,
        io::ErrorKind::TimedOut => Cause::ConnectTimeout,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Cause::Closed,
        _ => Cause::Network,
    }
}
