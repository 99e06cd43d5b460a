//! Adoptions of several keys: the client takes all of them over, or none.

use super::call::in_order;
use super::core::Changed;
use super::lease::{judged_again, worse_extension};
use crate::engine::core::Engine;
use crate::engine::event::Event;
use crate::engine::locks::op::{OpId, OpKind};
use crate::engine::locks::slot::LeaseId;
use crate::error::ExtendError;
use crate::options::LockOptions;
use crate::time::Instant;

impl Engine {
    /// Begins to take over the locks of several keys, each by its token, as [`adopt`](Self::adopt)
    /// does for one. A lease of several keys has no fence, and ends with the first of them to end. If
    /// one key cannot be taken over, the client has none. The others stay, with the new TTL.
    ///
    /// # Errors
    ///
    /// As [`adopt`](Self::adopt). [`ExtendError::InvalidName`] also for no key, for more than 64, and
    /// for a key that appears twice. [`ExtendError::Full`] if there is no room for one operation per
    /// key and one more. Nothing is written then.
    pub fn adopt_all<K: AsRef<[u8]>, T: AsRef<[u8]>>(
        &mut self,
        locks: &[(K, T)],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        let names: Vec<_> = locks.iter().map(|(key, _)| key).collect();
        in_order(&names).map_err(|_| ExtendError::InvalidName)?;
        let mut locks: Vec<_> = locks.iter().collect();
        locks.sort_by_key(|(key, _)| key.as_ref());
        if let [(key, token)] = locks.as_slice() {
            return self.locks.adopt(key.as_ref(), token.as_ref(), options, now);
        }
        let options = LockOptions { fence: None, ..options.clone() };
        for (key, token) in &locks {
            self.locks.checked_adoption(key.as_ref(), token.as_ref(), options.ttl)?;
        }
        if self.locks.ops.room() <= locks.len() {
            return Err(ExtendError::Full);
        }
        let index = self.locks.ops.open(OpKind::Set).ok_or(ExtendError::Full)?;
        self.sets.is_used = true;
        let (mut ops, mut result) = (Vec::new(), Ok(()));
        for (key, token) in locks {
            match self.locks.adopt(key.as_ref(), token.as_ref(), &options, now) {
                Ok(op) => ops.push(op),
                Err(error) => result = worse_extension(result, Err(error)),
            }
        }
        let op = self.begin_change(index, ops, Changed::Adopt(Vec::new(), result));
        self.check_if_small();
        Ok(op)
    }

    /// Every key is decided. If one was not adopted, the client gives the others up, too.
    pub(super) fn report_adoption(
        &mut self,
        op: OpId,
        mut leases: Vec<LeaseId>,
        result: Result<(), ExtendError>,
        now: Instant,
    ) -> Event {
        let key_of = |lease: &LeaseId| self.locks.held_name(*lease).map(|(key, _)| key);
        leases.sort_by(|a, b| key_of(a).cmp(&key_of(b)));
        let ends = leases.iter().filter_map(|lease| self.locks.deadline(*lease)).min();
        let result = judged_again(result, ends, now);
        if result.is_err() {
            for lease in leases.drain(..) {
                self.sets.owners.remove(&lease);
                self.give_up_key(lease);
            }
        }
        let result =
            result.and_then(|()| self.hand_keys_over(op, leases, now).ok_or(ExtendError::NotOurs));
        Event::Adopt { op, result }
    }
}
