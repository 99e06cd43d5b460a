//! [`NodesOptions`]: how many nodes, where, and which servers they imitate.
//!
//! Layer: above the sans-IO line, because it also finds the ports.

use std::fmt;
use std::io::{self, ErrorKind};

use super::port::Port;
use crate::model::{Flavor, ServerOptions};

/// How many embedded nodes to start, on which ports, and which servers they imitate.
#[derive(Clone)]
pub struct NodesOptions {
    count: usize,
    first_port: Option<u16>,
    flavors: Vec<Flavor>,
    password: Option<String>,
    user: Option<(String, String)>,
    clients_max: usize,
}

impl fmt::Debug for NodesOptions {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodesOptions")
            .field("count", &self.count)
            .field("first_port", &self.first_port)
            .field("flavors", &self.flavors)
            .field("clients_max", &self.clients_max)
            .finish_non_exhaustive()
    }
}

impl NodesOptions {
    /// `count` nodes of the default flavor on free ports, without a password, for up to 10,000
    /// clients each.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        Self {
            count,
            first_port: None,
            flavors: Vec::new(),
            password: None,
            user: None,
            clients_max: 10_000,
        }
    }

    /// The first node's port; the others follow it.
    #[must_use]
    pub const fn first_port(mut self, port: u16) -> Self {
        self.first_port = Some(port);
        self
    }

    /// The server that all nodes imitate.
    #[must_use]
    pub fn flavor(self, flavor: Flavor) -> Self {
        self.flavors([flavor])
    }

    /// The servers that the nodes imitate, in order, and again from the first if there are more
    /// nodes.
    #[must_use]
    pub fn flavors(mut self, flavors: impl IntoIterator<Item = Flavor>) -> Self {
        self.flavors = flavors.into_iter().collect();
        self
    }

    /// The password of the default user.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// One more user, who may run everything.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// How many connections one node accepts before it answers `max number of clients reached`.
    #[must_use]
    pub const fn max_clients(mut self, count: usize) -> Self {
        self.clients_max = count;
        self
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) const fn clients_max(&self) -> usize {
        self.clients_max
    }

    /// The options for the model of one node.
    pub(super) fn model(&self, node: usize) -> ServerOptions {
        let flavor = self.flavors.iter().cycle().nth(node).copied().unwrap_or_default();
        let mut model = ServerOptions::new(flavor);
        if let Some(password) = &self.password {
            model = model.password(password.as_str());
        }
        if let Some((name, password)) = &self.user {
            model = model.user(name.as_str(), password.as_str());
        }
        model
    }

    /// The port of one node.
    pub(super) fn port(&self, node: usize) -> io::Result<Port> {
        let Some(first) = self.first_port else {
            return Port::free();
        };
        let port = u16::try_from(node).ok().and_then(|node| first.checked_add(node));
        let port =
            port.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "its port is above 65535"))?;
        Port::chosen(port).map_err(|error| {
            io::Error::new(error.kind(), format!("port {port} of 127.0.0.1: {error}"))
        })
    }
}
