//! The driving thread's work on the table: it hands results out, ends calls whose time is over, and
//! takes commands. At the end of the client it ends every call.

use super::calls::{CallIndex, CallKind, CallResult, Listener, QueueIndex, Stage};
use super::table::{Command, Table};
#[cfg(feature = "metrics")]
use crate::count::Oldest;
use crate::engine::Engine;
use crate::rules;
use crate::time::Instant;

impl Table {
    /// Takes the results of operations. Notes the listeners to notify.
    pub(super) fn hand_out(
        &mut self,
        engine: &Engine,
        has_lost: bool,
        now: Instant,
        replies: &mut Vec<(CallIndex, CallResult)>,
        tell: &mut Vec<Listener>,
    ) {
        self.sleeping.note_awake();
        self.voters = engine.voters();
        if has_lost {
            // A lease was lost, or its deadline moved nearer: the table looks again at the calls that wait.
            self.next_due = Instant::default();
        }
        // A call whose time is over ends before the results: else it would compete at its turn.
        self.expire(now, engine, tell);
        for (call, reply) in replies.drain(..) {
            let listener = self.complete(call, reply, engine, now);
            if !matches!(listener, Listener::None) {
                tell.push(listener);
            }
        }
        for (lease, key) in engine.waited_for() {
            let lingering = self.queues.note_wanted_elsewhere(lease, key);
            self.commands.extend(lingering.map(Command::Release));
        }
        self.expire_lingering(now);
    }

    /// Gives the driving thread the commands that have come, in exchange for an empty list.
    pub(super) fn take_commands(&mut self, commands: &mut Vec<Command>) {
        self.sleeping.note_awake();
        std::mem::swap(commands, &mut self.commands);
    }

    /// Takes the result of an operation.
    fn complete(
        &mut self,
        call: CallIndex,
        reply: CallResult,
        engine: &Engine,
        now: Instant,
    ) -> Listener {
        let place = self.calls.at(call);
        let (queue, kind, lease) = (place.queue, place.kind, place.lease);
        if let (Some(queue), Some(lease)) = (queue, lease) {
            self.look_at(queue, lease, engine);
        }
        if let Some(queue) = queue.filter(|_| matches!(kind, CallKind::Lock | CallKind::Adopt)) {
            self.decided(queue, call, &reply);
        }
        let place = self.calls.at(call);
        if !place.is_abandoned {
            return self.calls.finish(call, reply);
        }
        // No listener is left: the caller took it along when it gave the call up.
        self.calls.close(call);
        self.take_back(queue, reply, || now).unwrap_or_default()
    }

    /// The network has decided a call for a key: the call holds the key, or the next one competes.
    fn decided(&mut self, queue: QueueIndex, call: CallIndex, reply: &CallResult) {
        let here = self.queues.at_mut(queue);
        if here.competitor == Some(call) {
            here.competitor = None;
        }
        if let CallResult::Lock(Ok(lease)) | CallResult::Adopt(Ok(lease)) = reply {
            self.queues.won(queue, lease, &self.calls.at(call).options);
            let here = self.queues.at(queue);
            if here.first.is_some() || here.slots > 0 {
                // The calls behind wait for the end of this lease.
                self.next_due = self.next_due.min(lease.deadline());
            }
        }
        self.advance(queue);
        self.queues.leave(queue);
    }

    /// Ends the waits whose time is over, and advances each queue whose holder's time is over.
    fn expire(&mut self, now: Instant, engine: &Engine, tell: &mut Vec<Listener>) {
        if now < self.next_due {
            return;
        }
        let mut next_due = Instant::MAX;
        for call in self.calls.indices() {
            let place = self.calls.at(call);
            if place.kind == CallKind::Loss && place.stage == Stage::UnderWay {
                let lease = place.lease.filter(|lease| !engine.is_lost(*lease));
                let deadline = lease.and_then(|lease| engine.deadline(lease));
                match deadline.filter(|deadline| *deadline > now) {
                    Some(deadline) => next_due = next_due.min(deadline),
                    None => tell.push(self.calls.finish(call, CallResult::Lost)),
                }
            }
            let place = self.calls.at(call);
            if place.stage != Stage::Queued {
                continue;
            }
            if place.ends > now {
                next_due = next_due.min(place.ends);
                continue;
            }
            let holder = place.queue.and_then(|queue| self.queues.at(queue).holder);
            let error = self.lists.queued_in_vain(holder, engine, now);
            self.leave_queue(call);
            tell.push(self.calls.finish(call, CallResult::Lock(Err(error))));
        }
        for index in self.queues.indices() {
            let queue = self.queues.at_mut(index);
            let Some(holder) = &mut queue.holder else { continue };
            // The holder may have extended or lost the lease meanwhile.
            holder.valid_until = engine.deadline(holder.id).unwrap_or_default();
            // Where a slot is over, a call that waits for another slot of the lock may compete.
            if queue.first.is_none() && queue.slots == 0 {
                continue;
            }
            if holder.valid_until > now {
                next_due = next_due.min(holder.valid_until);
            } else {
                queue.holder = None;
                self.advance(index);
                self.queues.free_if_unused(index);
            }
        }
        self.next_due = next_due;
    }

    // ---- the end ----

    /// Begins the end. `Err`: the end has come, with this many releases owed.
    pub(super) fn begin_shutdown(&mut self, ends: Instant) -> Result<CallIndex, usize> {
        self.is_closed = true;
        if let Some(owed) = self.ended {
            return Err(owed);
        }
        let call = self.calls.open_beyond(CallKind::Shutdown).ok_or(0_usize)?;
        self.commands.push(Command::Shutdown { ends });
        Ok(call)
    }

    /// Ends every wait in a queue, and takes back leases that calls have won and their callers have
    /// not taken. No further call gets a lock.
    pub(super) fn close(&mut self, tell: &mut Vec<Listener>) {
        self.is_closed = true;
        for queue in self.queues.indices() {
            if rules::ends_with_client(true) {
                self.end_linger(queue);
            }
        }
        for call in self.calls.indices() {
            let place = self.calls.at(call);
            if place.stage == Stage::Queued {
                self.leave_queue(call);
                tell.push(self.calls.finish(call, CallResult::closed(CallKind::Lock, 0)));
            } else if place.stage == Stage::Done
                && let Some(lease) = self.calls.recall(call)
            {
                self.commands.push(Command::Release(lease));
            }
        }
    }

    /// The I/O thread ends, and so does every call.
    pub(super) fn end(&mut self, owed: usize, tell: &mut Vec<Listener>) -> Vec<Command> {
        self.close(tell);
        let owed = *self.ended.get_or_insert(owed);
        for call in self.calls.indices() {
            let place = self.calls.at(call);
            if place.stage != Stage::UnderWay {
                continue;
            }
            if place.is_abandoned {
                self.calls.close(call);
            } else {
                let reply = CallResult::closed(place.kind, owed);
                tell.push(self.calls.finish(call, reply));
            }
        }
        std::mem::take(&mut self.commands)
    }

    // ---- metrics ----

    /// When the oldest call for a lock began, and since when the oldest lease is held. The
    /// table does not note when one caller hands a lease to the next. Such a hold counts from the
    /// table's next look.
    #[cfg(feature = "metrics")]
    pub(super) fn oldest(&mut self, now: Instant) -> Oldest {
        let mut oldest = Oldest::default();
        for index in self.calls.indices() {
            let call = self.calls.at_mut(index);
            let is_open = matches!(call.stage, Stage::Queued | Stage::UnderWay);
            if is_open && call.kind == CallKind::Lock && !call.options.is_announced {
                oldest.note_call(call.began.or(now));
            }
        }
        for index in self.queues.indices() {
            let queue = self.queues.at_mut(index);
            let is_used = queue.lingering.is_none();
            let holder = queue.holder.as_mut().filter(|holder| is_used && !holder.is_announced);
            if let Some(holder) = holder {
                oldest.note_hold(holder.held_since.or(now));
            }
        }
        oldest
    }
}
