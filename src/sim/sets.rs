//! Tasks that lock several keys at once.

use super::task::Task;
use super::world::World;

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
        let mut set: Vec<usize> = keys.filter(|it| *it == key || self.random.chance(700)).collect();
        let more = set.split_off(1);
        (set[0], more)
    }
}
