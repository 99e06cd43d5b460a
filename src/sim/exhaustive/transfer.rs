//! One transfer: the first client holds the lock, the second waits for it, and the first releases.

use std::time::Duration;

use super::CLIENTS;
use super::world::{Client, Part, TTL, World, has};
use crate::options::LockOptions;
use crate::quorum::NodeId;
use crate::retry::Retry;

const HOLDER: usize = 0;
pub(super) const WAITER: usize = 1;

/// How long the holder has held the lock when the other client comes.
const HELD: Duration = Duration::from_millis(500);

/// By when the waiter has its lock and every key is deleted, once nothing is lost any more. It is
/// shorter than the TTL, because the end of a TTL must not free the lock.
pub(super) const SOON: Duration = Duration::from_secs(2);

/// A call that waits for longer than a TTL.
pub(super) fn patient() -> LockOptions {
    let retry = Retry::every(Duration::from_millis(5), Duration::ZERO);
    LockOptions::new(TTL).retry(retry.timeout(TTL * 10))
}

impl World {
    /// Up to the release there is one order.
    pub(super) fn begin_transfer(&mut self) {
        self.acquire(HOLDER, &LockOptions::new(TTL));
        self.arrive().expect("nobody else is there");
        self.pass(HELD);
        self.acquire(WAITER, &patient());
        self.arrive().expect("it waits");
        (self.clients[HOLDER].has_won, self.first) = (false, None);
        self.release(HOLDER);
        let engine = &self.clients[HOLDER].engine;
        let is_script = |node: &NodeId| has(engine.output(*node), b"publish");
        let scripts = engine.nodes_with_output().into_iter().filter(is_script).count();
        assert_eq!(scripts, engine.voters().count() as usize, "it is handed over");
        self.turn(HOLDER);
    }

    /// From here on nothing is lost. The waiter gets the lock, unless it has had it, and behind its
    /// release no key is left and nothing is owed.
    pub(super) fn check_transfer(&mut self) -> Result<(), String> {
        let until = self.now + SOON;
        loop {
            self.arrive()?;
            self.check()?;
            if self.clients[WAITER].has_won && !self.clients[WAITER].has_released {
                self.release(WAITER);
                self.turn(WAITER);
                continue;
            }
            let is_over = self.clients[WAITER].has_ended;
            let owed: [usize; CLIENTS] =
                std::array::from_fn(|client| self.clients[client].engine.slots_in_use());
            if is_over && owed == [0; CLIENTS] {
                break;
            }
            if self.now >= until && !is_over {
                return Err("the waiter is lost".to_owned());
            }
            if self.now >= until {
                self.check_keys()?;
                return Err(format!("the clients remember {owed:?} attempts"));
            }
            self.pass(self.until_due());
        }
        if !self.clients[WAITER].has_won {
            return Err("the waiter has given up".to_owned());
        }
        self.check_keys()
    }

    /// How long it takes until a client has something to do.
    pub(super) fn until_due(&self) -> Duration {
        let due = |client: &Part<Client>| {
            client.engine.next_deadline().map_or(SOON, |at| client.now.until(at))
        };
        let next = self.clients.iter().map(due).min().unwrap_or(SOON);
        next.clamp(Duration::from_millis(1), Duration::from_millis(50))
    }
}
