//! The parts of an engine.

use std::collections::VecDeque;

use super::locks::state::Locks;
use super::wait::Waiting;
use crate::quorum::NodeId;
use crate::slab::OpIndex;

/// A Redlock client without its sockets. See the [module](crate::engine) for how to drive it.
pub struct Engine {
    pub(super) locks: Locks,
    pub(super) waiting: Waiting,
    /// Attempts that waiting calls are to make, at one node before the others or at all nodes.
    pub(super) tries: VecDeque<(OpIndex, Option<NodeId>)>,
    /// A frame or message that came in, while the engine works on it.
    pub(super) frame: Vec<u8>,
}
