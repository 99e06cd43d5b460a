//! The operations that wait, and how far each is.

use super::message::WaiterId;
use super::queue::Waiter;
use super::{ClientId, RawToken, client_of};
use crate::node::Phase;
use crate::quorum::{NodeId, NodeMask};
use crate::slab::{OpIndex, Slab, index_type};
use crate::time::Instant;

index_type! {
    /// An operation that waits.
    pub(in crate::engine) WaitIndex
}

/// What a waiter is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An attempt is under way, or about to be.
    Trying,
    /// A node was asked who holds the key.
    Asking,
    /// The holder was told, and the key is looked at once more.
    Announcing,
    /// The one that this client woke itself was told that it waits behind it.
    Queueing,
    /// Still, until it is woken or its timer comes.
    Listening,
    /// The safety poll is under way.
    Polling,
}

impl Step {
    /// Whether answers are awaited.
    pub(super) const fn is_asking(self) -> bool {
        match self {
            Self::Asking | Self::Announcing | Self::Queueing | Self::Polling => true,
            Self::Trying | Self::Listening => false,
        }
    }
}

/// One operation that waits.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) op: OpIndex,
    /// The number of the call among all of this client that have waited.
    pub(super) call: u32,
    pub(super) step: Step,
    /// Tells answers to the current question from those to earlier ones.
    pub(super) phase: Phase,
    /// The nodes that denied the last attempt and were asked in vain.
    pub(super) asked: NodeMask,
    /// How often another holder was seen since the last attempt, or since it last was still.
    pub(super) changes: u8,
    /// The node that is asked, or was.
    pub(super) node: Option<NodeId>,
    /// The token of the holder, if it is one that a client like this drew.
    pub(super) holder: Option<RawToken>,
    /// The holder that no node reaches.
    pub(super) unheard: Option<RawToken>,
    /// A node was asked to tell of changes since the last attempt, and when one was last asked.
    pub(super) has_looked: bool,
    pub(super) looked_at: Instant,
    /// The nodes that tell of the key's next change, as far as is known.
    pub(super) tracked: NodeMask,
    /// Somebody heard the announcement.
    pub(super) is_heard: bool,
    /// A holder that had the lock heard it: it is on the list that goes with the lock.
    pub(super) is_listed: bool,
    /// How many were to have their turns first when it queued.
    pub(super) ahead: u32,
    /// The last poll found the key gone.
    pub(super) is_gone: bool,
    /// When the key ends by itself, as far as is known.
    pub(super) ends: Instant,
    /// When its timer comes; earlier timers mean nothing.
    pub(super) due: Instant,
    /// Attempts since it last was still.
    pub(super) tries: u32,
    /// Those who wait behind it.
    pub(super) carried: Vec<Waiter>,
    /// How many of them the announcement under way names.
    pub(super) named: usize,
}

impl Wait {
    /// Those whom the announcement named are with the holder now; who came since is not.
    pub(super) fn hand_list_on(&mut self) {
        let named = std::mem::take(&mut self.named).min(self.carried.len());
        self.carried.drain(..named);
    }

    /// Whether it counts on being woken by `client`.
    pub(super) fn is_waiting_for(&self, client: ClientId) -> bool {
        let is_still = self.step != Step::Trying && self.step != Step::Asking;
        is_still && self.holder.is_some_and(|token| client_of(&token) == client)
    }

    /// Somebody who waits behind it waits no more.
    pub(super) fn forget(&mut self, id: WaiterId) {
        if let Some(place) = self.carried.iter().position(|waiter| waiter.is_struck_by(id)) {
            self.carried.remove(place);
            self.named -= usize::from(place < self.named);
        }
    }
}

/// The operations that wait.
#[derive(Debug, Default)]
pub(in crate::engine) struct Waits {
    waits: Slab<WaitIndex, Wait>,
    /// Those in use.
    pub(super) live: Vec<WaitIndex>,
    /// Questions so far.
    pub(super) questions: u32,
    /// Calls so far.
    pub(in crate::engine) calls: u32,
}

impl Waits {
    pub(super) fn at(&self, wait: WaitIndex) -> &Wait {
        self.waits.at(wait)
    }

    /// When the timer of a wait comes.
    pub(in crate::engine) fn due(&self, wait: WaitIndex) -> Instant {
        self.at(wait).due
    }

    /// The operations that wait.
    pub(super) fn ops(&self) -> impl Iterator<Item = OpIndex> {
        self.live.iter().map(|&wait| self.at(wait).op)
    }

    pub(super) fn at_mut(&mut self, wait: WaitIndex) -> &mut Wait {
        self.waits.at_mut(wait)
    }

    /// A place for an operation.
    pub(super) fn open(&mut self, op: OpIndex) -> Option<WaitIndex> {
        self.calls = self.calls.wrapping_add(1);
        let new = Wait {
            op,
            call: self.calls,
            step: Step::Trying,
            phase: Phase::default(),
            asked: NodeMask::EMPTY,
            changes: 0,
            node: None,
            holder: None,
            unheard: None,
            has_looked: false,
            looked_at: Instant::default(),
            tracked: NodeMask::EMPTY,
            is_heard: false,
            is_listed: false,
            ahead: 0,
            is_gone: false,
            ends: Instant::MAX,
            due: Instant::MAX,
            tries: 0,
            carried: Vec::new(),
            named: 0,
        };
        let wait = self.waits.insert(new)?;
        self.live.push(wait);
        Some(wait)
    }

    /// Gives a place back, and the list that was carried.
    pub(super) fn close(&mut self, wait: WaitIndex) -> Vec<Waiter> {
        self.live.retain(|&other| other != wait);
        self.waits.give_back(wait);
        std::mem::take(&mut self.at_mut(wait).carried)
    }
}
