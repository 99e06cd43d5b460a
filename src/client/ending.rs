//! The end of a client. No call begins any more, and waiting calls end. The client takes back the
//! leases that no caller has taken.

use super::calls::{CallKind, CallResult, Listener, Stage};
use super::indices::CallIndex;
use super::table::{Command, Table};
use crate::rules;
use crate::time::Instant;

impl Table {
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
}
