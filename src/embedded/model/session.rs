//! [`Session`]: what a server knows of one connection.
//!
//! Layer: sans-IO. Made by [`super::Server::connect`], handed back to
//! [`super::Server::disconnect`].

use std::ops::Range;

use super::keyspace::Watch;
use super::tracking::Tracking;
use crate::embedded::request::{Args, Parser};

/// One connection as its server sees it: protocol, user, watches, queued commands.
pub struct Session {
    pub(crate) id: u64,
    pub(crate) parser: Parser,
    pub(crate) resp3: bool,
    /// The user that commands run as; none before authentication.
    pub(crate) user: Option<User>,
    pub(crate) db: usize,
    pub(crate) name: Vec<u8>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) queue: Option<Queue>,
    pub(crate) channels: Vec<Vec<u8>>,
    pub(crate) tracking: Option<Tracking>,
    /// `CLIENT CACHING YES` came last.
    pub(crate) caching: bool,
    pub(crate) closing: bool,
}

/// Who a session is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Default,
    Named,
}

/// The commands between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) commands: Vec<Owned>,
    /// A command was refused as it came in: EXEC will run nothing.
    pub(crate) failed: bool,
    pub(crate) len_bytes: usize,
}

/// A request kept for later.
pub(crate) struct Owned {
    bytes: Vec<u8>,
    spans: Vec<Range<usize>>,
}

impl Session {
    pub(crate) fn new(id: u64, user: Option<User>) -> Self {
        Self {
            id,
            parser: Parser::default(),
            resp3: false,
            user,
            db: 0,
            name: Vec::new(),
            watches: Vec::new(),
            queue: None,
            channels: Vec::new(),
            tracking: None,
            caching: false,
            closing: false,
        }
    }

    /// Its number, as `CLIENT ID` says it: unique within one life of the server.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl Queue {
    pub(crate) fn add(&mut self, args: Args<'_>) {
        let command = Owned::new(args);
        self.len_bytes += command.bytes.len();
        self.commands.push(command);
    }
}

impl Owned {
    fn new(args: Args<'_>) -> Self {
        let mut bytes = Vec::new();
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.from(0) {
            let start = bytes.len();
            bytes.extend_from_slice(arg);
            spans.push(start..bytes.len());
        }
        Self { bytes, spans }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}
