//! One non-blocking socket to a node: TCP, TCP through TLS, or unix.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};

#[cfg(feature = "tls")]
use super::tls::{self, Target, TlsStream};
use crate::error::Cause;

/// If a peer acknowledges nothing for this long, it is gone, and the client gives the connection
/// up.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
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

    /// The same socket with a TLS session on it; a unix socket needs none.
    #[cfg(feature = "tls")]
    pub(super) fn through_tls(self, target: &Target) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => Ok(Self::Tls(Box::new(TlsStream::new(stream, target)?))),
            other @ (Self::Unix(_) | Self::Tls(_)) => Ok(other),
        }
    }

    /// Whether the bytes go through TLS.
    pub(super) const fn is_tls(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            #[cfg(feature = "tls")]
            Self::Tls(_) => true,
        }
    }

    /// Whether a socket that is not open yet waits to write, and not to read.
    pub(super) fn waits_to_write(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => true,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => !stream.is_begun() || stream.wants_write(),
        }
    }

    /// Sends the closing alert of TLS, as far as the socket takes it at once.
    #[cfg(feature = "tls")]
    pub(super) fn close(&mut self) {
        if let Self::Tls(stream) = self {
            stream.close();
        }
    }

    /// Registers the socket for writing too: it becomes writable when the connection is made.
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, BOTH)
    }

    /// Turns events for writing on or off. A unix socket that is watched for writing wakes its
    /// owner each time the peer has read.
    pub(super) fn watch_writable(
        &mut self,
        registry: &Registry,
        token: Token,
        is_wanted: bool,
    ) -> io::Result<()> {
        let interests = if is_wanted { BOTH } else { Interest::READABLE };
        registry.reregister(self.source(), token, interests)
    }

    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => &mut stream.tcp,
        }
    }

    /// Whether the connection is made, including its TLS handshake; `None` while that is under way.
    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::needless_pass_by_ref_mut, reason = "a TLS handshake goes on here")
    )]
    pub(super) fn finish_connect(&mut self) -> Option<io::Result<()>> {
        #[cfg(feature = "tls")]
        if let Self::Tls(stream) = self
            && stream.is_begun()
        {
            return shaken(stream);
        }
        let socket = SockRef::from(&*self);
        if let Some(error) = socket.take_error().transpose() {
            return Some(error.and_then(Err));
        }
        match socket.peer_addr() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return None,
            Err(error) => return Some(Err(error)),
            Ok(_) => {}
        }
        match self {
            Self::Tcp(_) | Self::Unix(_) => Some(Ok(())),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => shaken(stream),
        }
    }

    /// Whether the connection is made and waits for its TLS handshake.
    #[cfg(feature = "tls")]
    pub(super) const fn is_securing(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_begun())
    }

    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write(bytes),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.tcp.as_fd(),
        }
    }
}

/// How the handshake ended; `None` while it goes on.
#[cfg(feature = "tls")]
fn shaken(stream: &mut TlsStream) -> Option<io::Result<()>> {
    match stream.shake_hands() {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(error) => Some(Err(error)),
    }
}

/// The cause that a socket's error means for the node.
pub(super) fn cause_of(error: &io::Error, is_unix: bool) -> Cause {
    #[cfg(feature = "tls")]
    if let Some(cause) = tls::cause_of(error) {
        return cause;
    }
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
