//! Tasks that lock several keys at once.

use super::counts::Path;
use super::task::Task;
use super::world::World;
use crate::engine::LeaseId;
use crate::options::LockOptions;
use crate::rules::Kind;

/// The name of the lock with slots, where there is one.
pub(super) const SLOTTED: &str = "k";

impl Task {
    /// All its keys, in order.
    pub(super) fn keys(&self) -> Vec<usize> {
        [&[self.key], self.more.as_slice()].concat()
    }
}

impl World {
    /// Picks several keys now and then. Returns the first of them, and the others.
    pub(super) fn some_more(&mut self, client: usize, key: usize) -> (usize, Vec<usize>) {
        if self.plan.sets == 0 || !self.random.chance(self.plan.sets) {
            return (key, Vec::new());
        }
        let keys = self.plan.keys_of(client);
        if self.plan.slots {
            return (keys.start, keys.skip(1).collect());
        }
        let mut set: Vec<usize> = keys.filter(|it| *it == key || self.random.chance(700)).collect();
        let more = set.split_off(1);
        (set[0], more)
    }

    /// Where the keys are slots: the options of a call for all of them, or for one.
    pub(super) fn of_slots(&self, options: &LockOptions, is_writer: bool) -> LockOptions {
        let slots = self.plan.keys_alike() - 1;
        if is_writer { options.clone().write(slots) } else { options.clone().slots(slots) }
    }

    /// A lock was won. If the lock has slots, the client learns only now which slot it has.
    pub(super) fn note_slot(&mut self, client: usize, task: usize, lease: LeaseId) {
        if !self.plan.slots {
            return;
        }
        let keys = self.plan.keys_of(client);
        let names: Vec<_> = self.clients[client].names(lease).into_iter().map(|it| it.0).collect();
        let place = |name: &Vec<u8>| keys.clone().find(|key| self.plan.plain(*key) == *name);
        let held: Vec<usize> = names.iter().filter_map(place).collect();
        let is_reader = self.clients[client].tasks[task].more.is_empty();
        self.counts.path(if is_reader { Path::SlotLocked } else { Path::AllSlotsLocked });
        let wanted = if is_reader { 1 } else { keys.len() };
        self.oracle.check(Kind::LimitIgnored, held.len() == wanted, || {
            format!("client {client} holds {held:?}, and asked for {wanted}")
        });
        let this = &mut self.clients[client].tasks[task];
        if let [first, more @ ..] = held.as_slice() {
            (this.key, this.more) = (*first, more.to_vec());
        }
    }
}
