//! How old the oldest call and the oldest lease are: the feature `metrics`.

use super::calls::{CallKind, Stage};
use super::table::Table;
use crate::count::Oldest;
use crate::time::Instant;

impl Table {
    /// When the oldest call for a lock began, and since when the oldest lease is held. The
    /// table does not note when one caller hands a lease to the next. Such a hold counts from the
    /// table's next look.
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
