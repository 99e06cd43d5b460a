//! Locks that come back to their last holder: what the engine does around a lease that lingers.

use super::core::Engine;
use super::locks::observe::Happening;
use super::locks::op::OpId;
use super::locks::slot::LeaseId;
use crate::error::LockError;
use crate::node::Now;
use crate::options::LockOptions;
use crate::rules;
use crate::slab::SlotIndex;
use crate::time::Instant;

impl Engine {
    /// Begins to take a lock: one attempt, unless the options have a `retry`. A lock that lingers is
    /// taken at once.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let op = self.retake_or_begin(key, options, now);
        // Without the counts not even the test for an error is left.
        #[cfg(feature = "metrics")]
        let op = op.inspect_err(|error| self.locks.observe(Happening::CallRefused { error }));
        op
    }

    #[inline]
    fn retake_or_begin(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if !self.locks.lingers.is_empty()
            && let Some(op) = self.retake(key, options, now)?
        {
            return Ok(op);
        }
        self.begin_call(key, options, now)
    }

    /// The lease begins to linger instead of being released, if it may and nobody waits for it.
    #[cold]
    pub(super) fn begin_linger(&mut self, slot: SlotIndex, now: Instant) -> bool {
        let key = self.locks.slots.at(slot).key.as_slice();
        !self.waiting.is_wanted(slot, key) && self.locks.begin_linger(slot, now)
    }

    /// The same, with a report of the unlock.
    #[cold]
    pub(super) fn begin_linger_reported(&mut self, slot: SlotIndex, now: Instant) -> Option<OpId> {
        // Where there is no room for a report the lease is released.
        let is_full = self.locks.ops.is_full();
        if is_full || !self.begin_linger(slot, now) {
            return None;
        }
        self.locks.report_lingers(slot).map(|index| self.locks.ops.id(index))
    }

    /// A call takes the lease that lingers for its key. Where it cannot, that lease is released, and
    /// the SETs of the call go behind.
    #[cold]
    fn retake(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<Option<OpId>, LockError> {
        let Some(slot) = self.locks.lingering(key) else { return Ok(None) };
        let Some(ttl_ms) = self.locks.checked_ttl(options.ttl) else { return Ok(None) };
        if !self.locks.may_retake(slot, options, ttl_ms, now) {
            self.end_linger(self.locks.slots.lease_id(slot), now);
            return Ok(None);
        }
        let index = self.open_call(options, ttl_ms, now)?;
        self.locks.observe(Happening::Call { op: index, slot, ttl_ms, now });
        let limit_ms = self.locks.ops.at(index).plan.linger_ms;
        self.locks.retake(index, slot, limit_ms);
        Ok(Some(self.locks.ops.id(index)))
    }

    /// Somebody may have announced that it waits for the lock of this slot: a lease that lingers is
    /// handed over, or released.
    #[inline]
    pub(super) fn hear(&mut self, slot: Option<SlotIndex>, now: Now) {
        if let Some(slot) = slot.filter(|&slot| self.locks.slots.at(slot).is_lingering())
            && rules::ends_lingering(self.waiting.count_for(slot) > 0)
        {
            self.end_linger(self.locks.slots.lease_id(slot), now.real);
        }
    }

    /// The timer of a lease that may linger is due.
    pub(super) fn linger_due(&mut self, slot: SlotIndex, now: Instant) {
        if let Some(lease) = self.locks.linger_due(slot, now) {
            self.end_linger(lease, now);
        }
    }

    /// Releases all leases that linger: the client is about to end.
    pub(super) fn end_lingering(&mut self, now: Instant) {
        let mut slots = self.locks.lingers.slots();
        slots.retain(|&slot| self.locks.slots.at(slot).is_lingering());
        for slot in slots {
            self.end_linger(self.locks.slots.lease_id(slot), now);
        }
    }

    fn end_linger(&mut self, lease: LeaseId, now: Instant) {
        self.locks.lingers.forbid(lease.slot);
        self.let_go(lease, now);
    }

    /// Releases a lease without a report, or hands it over to who waits.
    pub(super) fn let_go(&mut self, lease: LeaseId, now: Instant) {
        if self.locks.slots.held(lease).is_some() && self.waiting.has_queue(lease.slot) {
            self.choose_heir(lease.slot, self.locks.both_clocks(now));
        }
        if self.locks.release_quietly(lease, now) {
            self.pass_on(lease.slot, self.locks.both_clocks(now));
        }
    }

    /// The lease will not linger: its user gives the token to others.
    pub fn forbid_linger(&mut self, lease: LeaseId) {
        if self.locks.slots.held(lease).is_some() {
            self.locks.lingers.forbid(lease.slot);
        }
    }

    /// Whether the next call for the key may take a lock that lingers, once the sockets are read:
    /// that was too long ago.
    pub(crate) fn needs_look(&self, key: &[u8], now: Instant) -> bool {
        !self.locks.lingers.is_empty()
            && !self.locks.has_looked(now)
            && self.locks.lingering(key).is_some()
    }

    /// For a lock that was taken again: when the round began that its deadline is from.
    #[cfg(feature = "sim")]
    pub(crate) fn retaken(&self, lease: LeaseId) -> Option<Instant> {
        let slot = self.locks.slots.held(lease).filter(|slot| slot.is_retaken())?;
        Some(self.locks.answered_at(slot.ends, slot.ttl_ms).0)
    }
}
