//! The parts of an engine.

use super::locks::core::Locks;
use super::wait::Waiting;

/// A Redlock client without its sockets. See the [module](crate::engine) for how to drive it.
pub struct Engine {
    pub(super) locks: Locks,
    pub(super) waiting: Waiting,
    /// The actions of the waiting machine are being done: those that follow from them are done behind
    /// them, by the same loop.
    pub(super) is_acting: bool,
    /// A frame or message that came in, while the engine works on it.
    pub(super) frame: Vec<u8>,
}
