//! [`Session`]: a server's knowledge of one connection.
//!
//! Layer: sans-IO. [`super::Server::connect`] makes it, and [`super::Server::disconnect`] takes it
//! back.

use crate::request::Parser;

/// One connection as its server sees it: protocol, user, subscriptions.
#[derive(Clone)]
pub struct Session {
    pub(crate) id: u64,
    pub(crate) parser: Parser,
    pub(crate) resp3: bool,
    /// The user whose rights commands have; `None` before authentication.
    pub(crate) user: Option<User>,
    pub(crate) db: usize,
    pub(crate) channels: Vec<Vec<u8>>,
    pub(crate) closing: bool,
}

/// The user of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Default,
    Named,
}

impl Session {
    pub(crate) fn new(id: u64, user: Option<User>) -> Self {
        Self {
            id,
            parser: Parser::default(),
            resp3: false,
            user,
            db: 0,
            channels: Vec::new(),
            closing: false,
        }
    }

    /// The session's number, as in HELLO's answer: unique within one life of the server.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Whether the session uses RESP3: its client has sent `HELLO 3`.
    #[must_use]
    pub const fn is_resp3(&self) -> bool {
        self.resp3
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}
