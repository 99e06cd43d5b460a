//! Locks that linger: the last caller of this process has unlocked them, and the client keeps them
//! for the next caller. For the engine such a lease is held all the time.
//!
//! # Invariants
//!
//! - A lease that lingers is its queue's holder, and no call waits in that queue.
//! - The client releases such a lease as soon as the I/O thread hears that another process waits,
//!   and when its time to linger is over. If a lease does not suit the next call, the client
//!   releases the lease before that call.

use std::cmp::Reverse;
use std::time::Duration;

use super::calls::{CallResult, Listener};
use super::counting::Moment;
use super::indices::{CallIndex, QueueIndex};
use super::rules::Rules;
use super::table::Table;
use crate::driver::Lease;
use crate::engine::LeaseId;
use crate::rules;
use crate::time::Instant;

impl Table {
    /// No call of this process waits for the lease: it lingers, if it may.
    pub(super) fn begin_linger(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, Lease> {
        let here = self.queues.at_mut(queue);
        let Some(holder) = here.holder.as_mut() else { return Err(lease) };
        let is_free = rules::may_linger(here.competitor.is_none() && !holder.is_wanted_elsewhere);
        let has_turns = rules::has_turns_left(holder.turns < self.rules.turns_max(false));
        let until = self.rules.lingers_until(holder, lease.deadline());
        if holder.linger.is_zero() || !is_free || !has_turns || lease.is_lost() || now() >= until {
            return Err(lease);
        }
        if holder.lingers_until != until {
            holder.lingers_until = until;
            self.lingering.push(Reverse((until, queue)));
        }
        here.lingering = Some(lease);
        self.sleeping.must_listen = true;
        Ok(Listener::None)
    }

    /// A call takes the lease that lingers for its key. If the lease does not suit the call, the
    /// client releases it, and the call follows the release.
    pub(super) fn retake(&mut self, queue: QueueIndex, call: CallIndex, now: Instant) -> bool {
        let here = self.queues.at_mut(queue);
        let (Some(lease), Some(holder)) = (&here.lingering, &mut here.holder) else { return false };
        let wanted = &self.calls.at(call).options;
        let is_enough = now + self.rules.validity_wanted(wanted) <= lease.deadline();
        let is_sound = now < rules::linger_ends(holder.lingers_until)
            && !rules::is_known_lost(lease.is_lost())
            && !rules::is_known_elsewhere(lease.is_exposed());
        if !rules::lasts_for_call(is_enough) || !is_sound || !Rules::suits(holder, wanted) {
            self.end_linger(queue);
            return false;
        }
        holder.hand_on(Moment::of(now), wanted);
        let Some(lease) = here.lingering.take() else { return false };
        // The lease keeps the queue from now on. No listener waits for the call yet.
        self.queues.leave(queue);
        let _nobody = self.calls.finish(call, CallResult::Lock(Ok(lease)));
        true
    }

    /// The client computes the time to linger from the TTL of the last SET. An extension by another
    /// TTL ends it.
    pub(super) fn begin_extension(&mut self, queue: QueueIndex, lease: LeaseId, ttl: Duration) {
        if let Some(holder) = &mut self.queues.at_mut(queue).holder
            && holder.id == lease
            && rules::ends_time_to_linger(holder.ttl != ttl)
        {
            (holder.linger, holder.is_extended) = (Duration::ZERO, true);
        }
    }

    /// Releases the leases that have lingered for long enough.
    pub(super) fn expire_lingering(&mut self, now: Instant) {
        while let Some(&Reverse((until, queue))) = self.lingering.peek()
            && until <= now
        {
            self.lingering.pop();
            let holder = self.queues.at(queue).holder;
            if holder.is_some_and(|holder| holder.lingers_until == until) {
                self.end_linger(queue);
            }
        }
    }

    /// When something is due in the table.
    pub(super) fn due_at(&self) -> Instant {
        let lingering = self.lingering.peek().map_or(Instant::MAX, |Reverse((until, _))| *until);
        self.next_due.min(lingering)
    }
}
