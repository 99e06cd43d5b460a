//! The parts of an engine.

use super::locks::core::Locks;
use super::sets::Sets;
use super::wait::Waiting;
use crate::config::Config;
use crate::quorum::Electorate;
use crate::time::Instant;

/// A Redlock client without its sockets. See the [module](crate::engine) for how to drive it.
#[cfg_attr(feature = "sim", derive(Clone))]
pub struct Engine {
    pub(super) locks: Locks,
    pub(super) waiting: Waiting,
    pub(super) sets: Sets,
    /// The configuration, with the lists of nodes that were set last.
    pub(super) config: Box<Config>,
    pub(super) exchange: Exchange,
    /// The loop that carries out the machine's actions is running. It also carries out the actions
    /// that follow from them, after them.
    pub(super) is_acting: bool,
    /// A frame or message from a node, while the engine works on it.
    pub(super) frame: Vec<u8>,
}

/// The change of lists that is to come, and the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    /// The lists to come, and how many transfers there may be in a row then.
    pub(super) wanted: Option<(Electorate, u8)>,
    /// The next change may come from this time on; `None`: at any time.
    pub(super) settled_at: Option<Instant>,
    /// The names or the lists of nodes have changed since they were last taken.
    pub(super) is_changed: bool,
}
