//! What an engine is made of.

use std::collections::VecDeque;

use super::locks::state::Locks;
use super::wait::Waiting;
use crate::quorum::NodeId;
use crate::slab::OpIndex;

/// A Redlock client without its sockets. See the [module](crate::engine) for how to drive it.
pub struct Engine {
    pub(super) locks: Locks,
    pub(super) waiting: Waiting,
    /// Attempts that calls which waited are to make, at one node before the others or at all.
    pub(super) tries: VecDeque<(OpIndex, Option<NodeId>)>,
    /// A frame or a message that came in, while something is done with it.
    pub(super) frame: Vec<u8>,
}
