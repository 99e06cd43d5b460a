//! Two calls for the same two keys, begun at the same time. Both wait until they have both keys.

use super::CLIENTS;
use super::transfer::{SOON, patient};
use super::world::World;

pub(super) const KEYS: [&[u8]; 2] = [b"a", b"b"];

impl World {
    pub(super) fn begin_sets(&mut self) {
        let options = patient();
        for client in 0..CLIENTS {
            let this = &mut *self.clients[client];
            let op = this.engine.lock_all(&KEYS, &options, this.now);
            assert!(op.is_ok(), "nothing speaks against it");
            self.turn(client);
        }
    }

    /// From here on time goes on in one order. Both calls get both keys well before a TTL ends, and
    /// no key is left behind their releases.
    pub(super) fn check_sets(&mut self) -> Result<(), String> {
        let until = self.now + SOON;
        loop {
            self.arrive()?;
            self.check()?;
            let is_over = self.clients.iter().all(|client| client.has_released);
            if is_over && self.clients.iter().all(|client| client.engine.slots_in_use() == 0) {
                return self.check_keys();
            }
            if self.now >= until {
                let waits = "a call for both keys waits on";
                return Err(if is_over { "an attempt is remembered" } else { waits }.to_owned());
            }
            self.pass(self.until_due());
        }
    }
}
