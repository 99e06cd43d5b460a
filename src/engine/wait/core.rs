//! The parts of the waiting machine.

use std::time::Duration;

use super::list::List;
use super::outside::Actions;
use super::waiter::Waiter;
use super::wakes::{Wake, Wakes};
use crate::beside::Beside;
use crate::client_name::ClientId;
use crate::quorum::{Electorate, NodeMask};
use crate::slab::{OpIndex, SlotIndex};

/// The calls that wait for the lock of a slot.
#[derive(Clone, Debug)]
pub(super) struct WaitQueue {
    /// The hash of the key.
    pub(super) hash: u64,
    pub(super) list: List,
    /// How many transfers in a row have brought the lock here.
    pub(super) row: u8,
}

/// A lock that is being handed over.
#[derive(Clone, Debug)]
pub(super) struct Handover {
    /// The wake that follows if the transfer fails.
    pub(super) wake: Wake,
    /// The nodes that told the waiter.
    pub(super) told: NodeMask,
    /// The nodes whose answer is awaited.
    pub(super) open: NodeMask,
}

/// See the [module](super).
#[derive(Clone, Debug)]
pub(in crate::engine) struct Waiting {
    pub(super) client_id: ClientId,
    pub(super) node_timeout: Duration,
    pub(super) electorate: Electorate,
    pub(super) waiters: Beside<OpIndex, Waiter>,
    pub(super) queues: Beside<SlotIndex, WaitQueue>,
    pub(super) wakes: Wakes,
    /// By the slot that was released.
    pub(super) handovers: Beside<SlotIndex, Handover>,
    /// What the engine is to do; it takes the actions after each input.
    pub(in crate::engine) actions: Actions,
    /// How many calls have waited so far.
    pub(super) calls: u32,
    pub(super) questions: u32,
}
