//! The parts of an engine.

use super::exchange::Exchange;
use super::locks::core::Locks;
use super::sets::Sets;
use super::wait::Waiting;

/// A Redlock client without its sockets. See the [module](crate::engine) for how to drive it.
pub struct Engine {
    pub(super) locks: Locks,
    pub(super) waiting: Waiting,
    pub(super) sets: Sets,
    pub(super) exchange: Exchange,
    /// The loop that carries out the machine's actions is running. It also carries out the actions
    /// that follow from them, after them.
    pub(super) is_acting: bool,
    /// A frame or message from a node, while the engine works on it.
    pub(super) frame: Vec<u8>,
}
