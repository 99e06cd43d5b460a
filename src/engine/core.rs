//! The parts of an engine, and the invariants between two inputs: of each part by itself, and of the
//! parts together. Debug builds check them at each input, before or after it.

use super::locks::core::Locks;
use super::locks::op::{Op, OpKind, Verdict};
use super::locks::slot::{Mark, Slot, TokenState};
use super::locks::timers::Timer;
use super::sets::Sets;
use super::wait::Waiting;
use crate::config::Config;
use crate::quorum::Electorate;
use crate::slab::{OpIndex, SlotIndex};
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
    /// `act` is running. If an action causes others, the same `act` carries those out after the
    /// present ones.
    pub(super) is_acting: bool,
    /// A frame or message from a node, while the engine works on it.
    pub(super) frame: Vec<u8>,
}

/// The change of lists that is to come, and the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    /// The lists to come, and how many transfers there may be in a row then.
    pub(super) wanted: Option<(Electorate, u8)>,
    /// When the last change will be settled; `None` once it is. The next change comes after that.
    pub(super) settled_at: Option<Instant>,
    /// The names or the lists of nodes have changed since they were last taken.
    pub(super) is_changed: bool,
}

/// Only small engines are checked: the time of a check grows with the number of tokens.
const SMALL: usize = 64;

impl Engine {
    /// Panics if an invariant is broken; only in debug builds.
    #[inline(always)]
    pub(super) fn check_if_small(&self) {
        if cfg!(debug_assertions) && self.locks.slots.in_use() <= SMALL {
            self.check();
        }
    }

    /// Checks after a node's bytes. Each answer ends with a line's end: without one, the locks are
    /// as they were.
    #[inline(always)]
    pub(super) fn check_read(&self, bytes: &[u8]) {
        if cfg!(debug_assertions) && bytes.contains(&b'\n') {
            self.check_if_small();
        }
    }

    #[cold]
    fn check(&self) {
        self.check_locks();
        self.waiting.check();
        self.sets.check();
        assert!(!self.is_acting, "an action is not done");
        for (op, has_attempt) in self.waiting.calls_under_way() {
            let op = self.locks.ops.at(op);
            let state = self.locks.slots.at(op.slot()).state();
            let is_so = if has_attempt { state.is_lock() } else { state.is_released() };
            assert!(is_so, "{op:?} waits with {state:?}, has an attempt: {has_attempt}");
        }
    }

    fn check_locks(&self) {
        for (index, slot) in self.locks.slots.iter() {
            let op = slot.op.map(|op| self.locks.ops.at(op));
            assert!(self.is_sound(index, slot, op), "{slot:?} with {op:?}");
            let is_open = self.locks.offers.open.contains(index);
            assert_eq!(is_open, slot.state() == TokenState::Offered, "{slot:?} is offered");
            let has_keep = self.locks.keep_of(index).is_some();
            assert!(!slot.has(Mark::KEPT) || has_keep, "{slot:?} is kept by nothing");
        }
        for (index, op) in self.locks.ops.iter() {
            assert!(self.is_placed(index, op), "{op:?} has no slot of its own");
            assert!(
                op.kind != OpKind::Free || op.part.is_none(),
                "{op:?} is free, and still names its set"
            );
        }
    }

    /// Whether a token's state fits its operation.
    fn is_sound(&self, index: SlotIndex, slot: &Slot, op: Option<&Op>) -> bool {
        let is_call = op.is_some_and(|op| op.kind == OpKind::Acquire && op.slot() == index);
        let outcome = op.map(|op| op.outcome);
        match slot.state() {
            TokenState::Free => op.is_none() && slot.refs == 0,
            TokenState::Asking => {
                // The last vote decides a round. A fenced attempt may need a second round.
                let waits =
                    op.is_some_and(|op| !op.round.open().union(op.round.awaited).is_empty());
                is_call && outcome == Some(Verdict::Open) && (waits || slot.has(Mark::FENCED))
            }
            TokenState::Gated | TokenState::Between => is_call && outcome == Some(Verdict::Open),
            TokenState::Won => is_call && outcome == Some(Verdict::Won),
            TokenState::Offered => op.is_none() && slot.has(Mark::OFFERED),
            TokenState::Held => !is_call,
            TokenState::Released => !is_call || outcome != Some(Verdict::Open),
            TokenState::GivenAway => slot.holds.is_empty(),
        }
    }

    /// Whether an operation under way has a slot that names it, and a time at which it ends.
    fn is_placed(&self, index: OpIndex, op: &Op) -> bool {
        if matches!(op.kind, OpKind::Free | OpKind::Query | OpKind::Set)
            || op.outcome != Verdict::Open
        {
            return true;
        }
        let ends = op.is_listed() || self.locks.timers.is_set(Timer::Judge(index));
        let waits = self.locks.timers.is_set(Timer::Retry(index))
            || self.locks.timers.is_set(Timer::Wait(index));
        self.locks.slots.at(op.slot()).op == Some(index) && (ends || waits)
    }
}
