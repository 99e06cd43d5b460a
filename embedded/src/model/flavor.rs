//! [`Flavor`]: the server that a node imitates, and texts in which the five differ.
//!
//! Layer: sans-IO, plain values. All texts come from the servers themselves;
//! `tests/it/differential.rs` compares them again on every run.

/// The server that an embedded node imitates: commands, error texts, `HELLO`, `INFO`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Redis 7.0.15: scripts only.
    Redis70,
    /// Redis 8.0.2: scripts only.
    Redis80,
    /// Redis 8.6.2: `DELEX`, `SET .. IFEQ`.
    Redis86,
    /// Valkey 8.1.1: `SET .. IFEQ`, scripts.
    Valkey81,
    /// Valkey 9.1.2: `DELIFEQ`, `SET .. IFEQ`.
    #[default]
    Valkey91,
}

impl Flavor {
    /// All flavors: Redis first, then Valkey, each from its oldest version.
    pub const ALL: [Self; 5] =
        [Self::Redis70, Self::Redis80, Self::Redis86, Self::Valkey81, Self::Valkey91];

    /// Its short name, such as `valkey-9.1`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis70 => "redis-7.0",
            Self::Redis80 => "redis-8.0",
            Self::Redis86 => "redis-8.6",
            Self::Valkey81 => "valkey-8.1",
            Self::Valkey91 => "valkey-9.1",
        }
    }

    /// One bit for each flavor, for the command table.
    pub(crate) const fn bit(self) -> u8 {
        match self {
            Self::Redis70 => 1,
            Self::Redis80 => 2,
            Self::Redis86 => 4,
            Self::Valkey81 => 8,
            Self::Valkey91 => 16,
        }
    }

    pub(crate) const fn is_valkey(self) -> bool {
        matches!(self, Self::Valkey81 | Self::Valkey91)
    }

    /// The error of `MSETEX` if its number of keys is invalid.
    pub(crate) const fn invalid_numkeys(self) -> &'static str {
        if self.is_valkey() {
            "ERR invalid numkeys value or out of range"
        } else {
            "ERR invalid numkeys value"
        }
    }

    /// `MSETEX` with fewer keys than it says.
    pub(crate) const fn too_few_pairs(self) -> &'static str {
        if self.is_valkey() { "ERR syntax error" } else { "ERR wrong number of key-value pairs" }
    }

    /// `server` in HELLO.
    pub(crate) const fn server(self) -> &'static str {
        if self.is_valkey() { "valkey" } else { "redis" }
    }

    /// The server's own name in its error texts.
    pub(crate) const fn title(self) -> &'static str {
        if self.is_valkey() { "Valkey" } else { "Redis" }
    }

    /// `version` in HELLO.
    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::Redis70 => "7.0.15",
            Self::Redis80 => "8.0.2",
            Self::Redis86 => "8.6.2",
            Self::Valkey81 => "8.1.1",
            Self::Valkey91 => "9.1.2",
        }
    }

    /// Name and path of the one module that HELLO lists.
    pub(crate) const fn module(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Redis80 | Self::Redis86 => Some(("vectorset", "")),
            Self::Valkey91 => Some(("lua", "lua")),
            Self::Redis70 | Self::Valkey81 => None,
        }
    }

    /// The error of a script that calls a command with too few arguments.
    pub(crate) const fn script_argument(self) -> &'static str {
        if self.is_valkey() {
            "ERR Command arguments must be strings or integers"
        } else {
            "ERR Lua redis lib command arguments must be strings or integers"
        }
    }

    pub(crate) const fn hello_unauthenticated(self) -> &'static str {
        if matches!(self, Self::Redis70) {
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
             the RESP protocol version at the same time"
        } else {
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time"
        }
    }
}
