//! The socket of one node and the addresses it may be made from.

use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::{Registry, Token};

use super::is_unix;
use super::socket::{Socket, cause_of};
use crate::address::{Address, Endpoint};
use crate::error::Cause;

pub(super) struct Link {
    endpoint: Endpoint,
    pub(super) socket: Option<Socket>,
    /// Whether the socket is connected.
    pub(super) is_open: bool,
    /// The peer has closed its side: read to the end.
    pub(super) is_read_closed: bool,
    /// Addresses of the name not yet tried, the next one last.
    untried: Vec<SocketAddr>,
    /// Whether a helper is looking the name up.
    pub(super) is_resolving: bool,
    /// What the name resolved to.
    known: Vec<SocketAddr>,
}

impl Link {
    pub(super) fn new(address: Address) -> Self {
        let known = match address.endpoint() {
            Endpoint::Tcp { host, port } => {
                host.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, *port)).into_iter().collect()
            }
            Endpoint::Unix(_) => Vec::new(),
        };
        Self {
            endpoint: address.endpoint().clone(),
            socket: None,
            is_open: false,
            is_read_closed: false,
            untried: Vec::new(),
            is_resolving: false,
            known,
        }
    }

    /// The host name to look up before a connection can be tried.
    pub(super) fn unresolved_host(&self) -> Option<(String, u16)> {
        match &self.endpoint {
            Endpoint::Tcp { host, port } if self.known.is_empty() => Some((host.clone(), *port)),
            Endpoint::Tcp { .. } | Endpoint::Unix(_) => None,
        }
    }

    pub(super) fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        self.is_resolving = false;
        self.untried.clear();
        self.known = addresses;
    }

    pub(super) fn has_next_address(&self) -> bool {
        !self.untried.is_empty()
    }

    /// Begins to connect to the next address.
    pub(super) fn connect(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.disconnect(registry);
        let mut socket = match &self.endpoint {
            Endpoint::Unix(path) => Socket::connect_unix(path)?,
            Endpoint::Tcp { .. } => {
                if self.untried.is_empty() {
                    self.untried.extend(self.known.iter().rev());
                }
                let address = self.untried.pop().ok_or(io::ErrorKind::AddrNotAvailable)?;
                Socket::connect_tcp(address)?
            }
        };
        socket.register(registry, token)?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Closes the socket. True if it was connected. A name none of whose addresses served is asked
    /// for again.
    pub(super) fn disconnect(&mut self, registry: &Registry) -> bool {
        let Some(mut socket) = self.socket.take() else { return false };
        // Closing it takes it out of the poll as well; what fails here changes nothing.
        let _ = socket.deregister(registry);
        let was_open = std::mem::take(&mut self.is_open);
        self.is_read_closed = false;
        if was_open {
            self.untried.clear();
        } else if self.untried.is_empty()
            && matches!(&self.endpoint, Endpoint::Tcp { host, .. } if host.parse::<IpAddr>().is_err())
        {
            self.known.clear();
        }
        was_open
    }

    pub(super) fn cause_of(&self, error: &io::Error) -> Cause {
        cause_of(error, is_unix(&self.endpoint))
    }
}
