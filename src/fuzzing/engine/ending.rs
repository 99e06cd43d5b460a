//! How a program ends: first nobody answers, then everybody does.

use std::time::Duration;

use super::KEYS;
use super::ledger::Name;
use super::world::World;
use crate::error::Cause;

/// Passes until all must have ended; each does something or lets time pass.
const PASSES_MAX: usize = 4000;

impl World {
    /// Every node that is to be connected is, and everything written is answered.
    pub(super) fn greet_all(&mut self) {
        for id in self.ids() {
            self.connect(id);
        }
        self.answer_all();
        self.settle_connections();
    }

    /// Everything that can be written is, and is answered, until nobody has anything to say.
    fn answer_all(&mut self) {
        for _ in 0..100 {
            let with_output = self.engine.nodes_with_output();
            if with_output.is_empty() {
                return;
            }
            for id in with_output {
                self.send(id, usize::MAX);
                self.peers[id.index()].run(usize::MAX, self.now);
                self.receive(id, usize::MAX);
            }
            self.settle_connections();
        }
        panic!("no end of questions: {:?}", self.engine);
    }

    /// Time passes, and the sockets are looked at as often as they should be.
    pub(super) fn attend(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let next = self.now + self.node_timeout;
            let next = self.engine.next_deadline().map_or(next, |at| at.min(next));
            self.now = next.max(self.now).min(end);
            self.pass();
            self.audit();
        }
    }

    /// Nobody answers any more: every operation ends all the same, in its time.
    pub(super) fn wait_in_vain(&mut self) {
        let attempt = self.node_timeout + self.connect_timeout + Duration::from_millis(600);
        let end = self.now + 3 * attempt + Duration::from_secs(3);
        while self.now < end && self.ledger.tickets.iter().any(|ticket| !ticket.is_endless) {
            self.attend(self.node_timeout);
        }
        for ticket in &self.ledger.tickets {
            assert!(ticket.is_endless, "an operation goes on without an answer");
        }
    }

    /// All nodes are well and answer at once, and all leases are given up: nothing is left.
    pub(super) fn end_well(&mut self) {
        for id in self.ids() {
            self.run_dead(id);
            self.peers[id.index()].heal();
            self.lose(id, Cause::Closed, false);
        }
        for ticket in &self.ledger.tickets {
            self.engine.cancel(ticket.op, self.now);
        }
        for _ in 0..PASSES_MAX {
            self.pass();
            for id in self.ids() {
                self.connect(id);
            }
            self.answer_all();
            self.poll_events();
            for held in std::mem::take(&mut self.ledger.leases) {
                self.engine.release(held.id, self.now);
            }
            self.answer_all();
            self.audit();
            let is_done = self.engine.in_flight() == 0
                && self.engine.slots_in_use() == 0
                && self.engine.releases_open(crate::time::Instant::MAX) == 0;
            if is_done {
                return self.check_nothing_left();
            }
            // Retries every millisecond are not waited for one by one.
            let least = self.now + Duration::from_millis(20);
            self.now = self.engine.next_deadline().map_or(least, |at| at.max(least));
        }
        panic!("no end at {:?}: {:?}", self.now, self.engine);
    }

    /// No server keeps a key that was not given away.
    fn check_nothing_left(&mut self) {
        if !self.ledger.trust.honest || !self.ledger.trust.in_order {
            return;
        }
        // Servers count whole milliseconds, and a key lives in the last of its TTL.
        let now = self.now + Duration::from_millis(2);
        for peer in &mut self.peers {
            for key in KEYS {
                let Some(token) = peer.value(key, now) else { continue };
                let is_it = |name: &Name| name.key == key && name.token == token;
                let is_detached = self.ledger.detached.iter().any(|(name, _)| is_it(name));
                assert!(is_detached, "a node keeps what nobody holds");
            }
        }
    }
}
