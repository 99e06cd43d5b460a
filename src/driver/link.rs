//! The socket of one node, and the addresses to which it may connect.

use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::{Registry, Token};

use super::socket::{Socket, cause_of};
#[cfg(feature = "tls")]
use super::tls::Target;
use crate::address::{Address, Endpoint};
use crate::config::Config;
use crate::error::{Cause, ConfigError};

pub(super) struct Link {
    endpoint: Endpoint,
    #[cfg(feature = "tls")]
    tls: Option<Target>,
    pub(super) socket: Option<Socket>,
    /// Whether the socket is connected.
    pub(super) is_open: bool,
    /// A short read does not mean that the socket is empty: the peer has closed its side, or the
    /// bytes come out of a TLS session.
    pub(super) reads_to_end: bool,
    /// Addresses of the name that the driver has not tried yet, the next one last.
    untried: Vec<SocketAddr>,
    /// Whether a thread is looking the name up.
    pub(super) is_resolving: bool,
    /// The addresses of the name; the address that served last comes first.
    known: Vec<SocketAddr>,
    /// The address to which the socket is connected, or connects.
    current: Option<SocketAddr>,
    /// The address that served last.
    served: Option<SocketAddr>,
}

impl Link {
    pub(super) fn new(address: &Address) -> Self {
        let known = match address.endpoint() {
            Endpoint::Tcp { host, port } => {
                host.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, *port)).into_iter().collect()
            }
            Endpoint::Unix(_) => Vec::new(),
        };
        Self {
            endpoint: address.endpoint().clone(),
            #[cfg(feature = "tls")]
            tls: None,
            socket: None,
            is_open: false,
            reads_to_end: false,
            untried: Vec::new(),
            is_resolving: false,
            known,
            current: None,
            served: None,
        }
    }

    /// From now on the link connects through TLS, if there is a target.
    #[cfg(feature = "tls")]
    pub(super) fn with_tls(self, tls: Option<Target>) -> Self {
        Self { tls, ..self }
    }

    /// The host name to look up before the driver can try a connection.
    pub(super) fn unresolved_host(&self) -> Option<(String, u16)> {
        match &self.endpoint {
            Endpoint::Tcp { host, port } if self.known.is_empty() => Some((host.clone(), *port)),
            Endpoint::Tcp { .. } | Endpoint::Unix(_) => None,
        }
    }

    pub(super) fn set_addresses(&mut self, mut addresses: Vec<SocketAddr>) {
        if let Some(place) = addresses.iter().position(|&found| Some(found) == self.served) {
            let address = addresses.remove(place);
            addresses.insert(0, address);
        }
        self.is_resolving = false;
        self.untried.clear();
        self.known = addresses;
    }

    pub(super) fn has_next_address(&self) -> bool {
        !self.untried.is_empty()
    }

    /// The address of the next attempt.
    #[cfg(test)]
    pub(super) fn next_address(&self) -> Option<SocketAddr> {
        self.untried.last().or_else(|| self.known.first()).copied()
    }

    /// Begins to connect to the next address.
    pub(super) fn connect(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.disconnect(registry, false);
        let socket = self.begin_connect(registry, token);
        if socket.is_err() {
            self.forget_spent();
        }
        self.socket = Some(socket?);
        Ok(())
    }

    fn begin_connect(&mut self, registry: &Registry, token: Token) -> io::Result<Socket> {
        let mut socket = match &self.endpoint {
            Endpoint::Unix(path) => Socket::connect_unix(path)?,
            Endpoint::Tcp { .. } => {
                if self.untried.is_empty() {
                    self.untried.extend(self.known.iter().rev());
                }
                let address = self.untried.pop().ok_or(io::ErrorKind::AddrNotAvailable)?;
                self.current = Some(address);
                Socket::connect_tcp(address)?
            }
        };
        #[cfg(feature = "tls")]
        if let Some(target) = &self.tls {
            socket = socket.through_tls(target)?;
        }
        socket.register(registry, token)?;
        Ok(socket)
    }

    /// Closes the socket. Returns whether it was connected.
    pub(super) fn disconnect(&mut self, registry: &Registry, served: bool) -> bool {
        let Some(mut socket) = self.socket.take() else { return false };
        // Closing takes the socket out of the poll as well, so an error here changes nothing.
        let _ = socket.deregister(registry);
        let was_open = std::mem::take(&mut self.is_open);
        #[cfg(feature = "tls")]
        if was_open {
            socket.close();
        }
        self.reads_to_end = false;
        if served {
            self.untried.clear();
            self.served = self.current;
        }
        self.forget_spent();
        was_open
    }

    /// Unless there are addresses of the name to try, the driver looks the name up again: another
    /// machine may have it by now, even if the old one still serves.
    fn forget_spent(&mut self) {
        let is_name =
            matches!(&self.endpoint, Endpoint::Tcp { host, .. } if host.parse::<IpAddr>().is_err());
        if is_name && self.untried.is_empty() {
            self.known.clear();
        }
    }

    /// Whether the socket is TCP without encryption.
    pub(super) const fn is_plain_tcp(&self) -> bool {
        matches!(self.socket, Some(Socket::Tcp(_)))
    }

    pub(super) fn cause_of(&self, error: &io::Error) -> Cause {
        cause_of(error, matches!(self.endpoint, Endpoint::Unix(_)))
    }
}

#[cfg(feature = "tls")]
pub(super) fn links_of(config: &Config) -> Result<Vec<Link>, ConfigError> {
    let targets = super::tls::targets(config)?;
    let links = config.nodes.iter().map(Link::new);
    Ok(links.zip(targets).map(|(link, target)| link.with_tls(target)).collect())
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "with TLS it can fail")]
pub(super) fn links_of(config: &Config) -> Result<Vec<Link>, ConfigError> {
    Ok(config.nodes.iter().map(Link::new).collect())
}
