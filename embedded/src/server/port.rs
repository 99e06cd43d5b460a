//! [`Port`]: the port of a node, killed or not.
//!
//! # Invariants
//!
//! - On Linux no other program gets the port while the node lives. A socket that listens to nothing
//!   holds the port, so that connections to a killed node are refused. Other systems would leave
//!   such connections without an answer, so there a killed node has no socket.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};

use mio::net::TcpListener;
use rand::TryRng as _;
use rand::rngs::SysRng;
use socket2::{Domain, SockRef, Socket, Type};

/// See the [module](self).
pub(super) struct Port {
    pub(super) number: u16,
    /// It holds the port, and shares it with the listener of the node.
    _holder: Option<Socket>,
}

impl Port {
    /// A free port below the range of outgoing connections. Within that range a client could get the
    /// node's port as its own.
    pub(super) fn free() -> io::Result<Self> {
        let mut last = ErrorKind::AddrInUse.into();
        for _ in 0..ATTEMPTS {
            let random = SysRng.try_next_u32().map_err(io::Error::other)?;
            let offset = u16::try_from(random % u32::from(PORTS_LEN)).unwrap_or(0);
            match Self::held(PORTS_FIRST + offset, false) {
                Ok(port) => return Ok(port),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The port that the caller has chosen. A program that has just ended may have used it.
    pub(super) fn chosen(number: u16) -> io::Result<Self> {
        Self::held(number, true)
    }

    fn held(number: u16, is_chosen: bool) -> io::Result<Self> {
        let holder = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        holder.set_reuse_address(is_chosen)?;
        holder.bind(&address(number).into())?;
        // From here on, only a socket with `SO_REUSEPORT` shares the port.
        holder.set_reuse_address(false)?;
        holder.set_reuse_port(true)?;
        Ok(Self { number, _holder: cfg!(target_os = "linux").then_some(holder) })
    }

    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // With this option, connections in TIME_WAIT do not keep the port from the next program
        // that chooses it.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address(self.number).into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(TcpListener::from_std(socket.into()))
    }
}

/// Closes a listener. A process that another thread has just forked holds the socket, too, until it
/// executes its program: so the socket stops listening first.
pub(super) fn close(listener: &TcpListener) {
    // Where a listener cannot be shut down, the port refuses connections a little later.
    drop(SockRef::from(listener).shutdown(Shutdown::Both));
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

const PORTS_FIRST: u16 = 18_000;
const PORTS_LEN: u16 = 14_000;
const ATTEMPTS: usize = 200;
const BACKLOG: i32 = 1024;
