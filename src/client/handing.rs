//! Leases that go from one caller of a client to the next, without a message to any node.

use super::calls::{CallResult, Listener};
use super::counting::Moment;
use super::indices::QueueIndex;
use super::rules::Rules;
use super::table::Table;
use crate::driver::Lease;
use crate::rules;
use crate::time::Instant;

impl Table {
    /// The holder gives a lease back. The lease goes to the next call in its queue if it may, or
    /// lingers. Otherwise the client releases it.
    pub(super) fn give_back(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        may_pass: bool,
        now: impl FnOnce() -> Instant,
    ) -> Listener {
        let lease = match self.pass_on_if(may_pass, queue, lease, now) {
            Ok(listener) => return listener,
            Err(lease) => lease,
        };
        self.release(queue, lease);
        Listener::None
    }

    /// Takes back a lease that a call has won and its caller has not taken: the next call in the
    /// queue gets it. An adopted lock stays as it is, because its last holder may still hold it.
    /// Any other reply comes back.
    pub(super) fn take_back(
        &mut self,
        queue: Option<QueueIndex>,
        reply: CallResult,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, CallResult> {
        match (reply, queue) {
            (CallResult::Lock(Ok(lease)), Some(queue)) => {
                Ok(self.give_back(queue, lease, true, now))
            }
            (CallResult::Adopt(Ok(lease)), Some(queue)) => {
                let id = lease.id();
                lease.leave();
                self.vacate(queue, id);
                Ok(Listener::None)
            }
            (reply, _) => Err(reply),
        }
    }

    /// Hands the lease to the next call in its queue, without asking any node. If there is none,
    /// the lease may linger. Returns the lease if it may do neither. Reads the clock only if the
    /// time matters.
    fn pass_on(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, Lease> {
        if self.is_closed || !self.queues.is_held_by(queue, lease.id()) {
            return Err(lease);
        }
        self.queues.pull(queue, &mut self.calls);
        let here = self.queues.at_mut(queue);
        let Some(next) = here.first else { return self.begin_linger(queue, lease, now) };
        let Some(holder) = &mut here.holder else { return Err(lease) };
        let turns_max = self.rules.turns_max(holder.is_wanted_elsewhere);
        if holder.turns >= turns_max || here.competitor.is_some() {
            return Err(lease);
        }
        let wanted = &self.calls.at(next).options;
        let is_short = lease.remaining_at(now()) < self.rules.validity_wanted(wanted);
        let is_beyond = !wanted.share.has(lease.slot());
        if is_beyond || !Rules::suits(holder, wanted) || rules::is_too_short_to_hand_on(is_short) {
            return Err(lease);
        }
        holder.hand_on(Moment::default(), wanted);
        holder.valid_until = lease.deadline();
        // The lease keeps the queue from now on.
        self.leave_queue(next);
        self.counting.turn();
        Ok(self.calls.finish(next, CallResult::Lock(Ok(lease))))
    }

    /// As [`pass_on`](Self::pass_on), if the lease may go to another call at all.
    pub(super) fn pass_on_if(
        &mut self,
        may_pass: bool,
        queue: QueueIndex,
        lease: Lease,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, Lease> {
        // Others may wait for single keys of a set.
        let is_ours = !lease.is_set() && !rules::is_known_elsewhere(lease.is_exposed());
        if may_pass && is_ours { self.pass_on(queue, lease, now) } else { Err(lease) }
    }
}
