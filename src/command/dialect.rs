//! The commands that a server offers to delete or extend a key only if it holds the token, best
//! first.
//!
//! The first guess goes by name and version. The server's answers decide. If the server does not know
//! or permit a form, the client uses the next one.

use std::fmt;

/// The kind of server that a node says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Redis,
    Valkey,
    Dragonfly,
    /// A server with another name, or without one.
    Other,
}

/// A server's kind and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) kind: ServerKind,
    pub(crate) version: (u16, u16),
}

/// How a key is deleted if it holds the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReleaseStep {
    /// `DELIFEQ`: Valkey from 9.0.
    DelIfEq,
    /// `DELEX .. IFEQ`: Redis from 8.4, Dragonfly from 1.37, Valkey from 9.2.
    DelEx,
    /// `EVAL`.
    Eval,
}

/// How a key's TTL is renewed if it holds the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExtendStep {
    /// `SET .. IFEQ .. PX`: Valkey from 8.1, Redis from 8.4.
    SetIfEq,
    /// `EVAL`.
    Eval,
}

/// A form of a command. The client tries the forms in ascending order.
pub(crate) trait Form: Copy + Ord {
    /// The form to try if the server does not offer this one.
    fn next(self) -> Option<Self>;

    /// A form with the same effect that still works when the server is out of memory.
    fn without_memory(self) -> Option<Self> {
        None
    }

    /// The form in use at a node.
    fn of(dialect: &mut Dialect) -> &mut Option<Self>;
}

impl Form for ReleaseStep {
    fn next(self) -> Option<Self> {
        match self {
            Self::DelIfEq => Some(Self::DelEx),
            Self::DelEx => Some(Self::Eval),
            Self::Eval => None,
        }
    }

    fn of(dialect: &mut Dialect) -> &mut Option<Self> {
        &mut dialect.release
    }
}

impl Form for ExtendStep {
    fn next(self) -> Option<Self> {
        match self {
            Self::SetIfEq => Some(Self::Eval),
            Self::Eval => None,
        }
    }

    /// Without memory a server refuses SET, but not PEXPIRE in a script.
    fn without_memory(self) -> Option<Self> {
        (self == Self::SetIfEq).then_some(Self::Eval)
    }

    fn of(dialect: &mut Dialect) -> &mut Option<Self> {
        &mut dialect.extend
    }
}

/// The steps in use at a node; `None` when no step is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) release: Option<ReleaseStep>,
    pub(crate) extend: Option<ExtendStep>,
    /// Whether it has `MSETEX`, which sets several keys or none: Redis from 8.4, Valkey from 9.1.
    pub(crate) sets_several: bool,
}

impl Dialect {
    /// The best steps that `server` is known to have.
    pub(crate) fn of(server: Server) -> Self {
        let since = |major, minor| server.version >= (major, minor);
        let (native_release, native_extend) = match server.kind {
            ServerKind::Valkey => (since(9, 0).then_some(ReleaseStep::DelIfEq), since(8, 1)),
            ServerKind::Redis => (since(8, 4).then_some(ReleaseStep::DelEx), since(8, 4)),
            ServerKind::Dragonfly => (since(1, 37).then_some(ReleaseStep::DelEx), false),
            ServerKind::Other => (None, false),
        };
        let sets_several = match server.kind {
            ServerKind::Valkey => since(9, 1),
            ServerKind::Redis => since(8, 4),
            ServerKind::Dragonfly | ServerKind::Other => false,
        };
        Self {
            sets_several,
            release: Some(native_release.unwrap_or(ReleaseStep::Eval)),
            extend: Some(if native_extend { ExtendStep::SetIfEq } else { ExtendStep::Eval }),
        }
    }

    /// Leaves `form`, which the server does not offer. A late answer to an earlier step changes
    /// nothing.
    pub(crate) fn leave<F: Form>(&mut self, form: F) {
        let now = F::of(self);
        if now.is_some_and(|now| now <= form) {
            *now = form.next();
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let release = match self.release {
            Some(ReleaseStep::DelIfEq) => "DELIFEQ",
            Some(ReleaseStep::DelEx) => "DELEX",
            Some(ReleaseStep::Eval) => "EVAL",
            None => "none",
        };
        let extend = match self.extend {
            Some(ExtendStep::SetIfEq) => "SET IFEQ",
            Some(ExtendStep::Eval) => "EVAL",
            None => "none",
        };
        write!(f, "{release} / {extend}")
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
            Self::Dragonfly => "Dragonfly",
            Self::Other => "server",
        })
    }
}
