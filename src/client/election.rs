//! Elections: a term of leadership is a lock that is kept alive, and whose holder is named beside it.

use std::time::Duration;

use super::Client;
use crate::driver::Lease;
use crate::driver::clock::now;
use crate::error::{LockError, UnlockError, Unlocked};
use crate::leader::{Led, Sighting};
use crate::options::LockOptions;
use crate::query::Query;

impl Client {
    /// Waits until this client leads the election `name`, and begins its term: a
    /// [`lock`](Self::lock) that is kept alive and [announced](LockOptions::announced). Without a
    /// `retry` or timeout in the options it waits for ever. The longer the TTL of the options, the
    /// later a leader is followed that dies: within its TTL.
    ///
    /// The client leads as long as [`Lease::is_valid`] says so: check it, or [`Lease::remaining`],
    /// right before each effect. A process that was paused beyond its term sees that at its first
    /// look. Between calls nobody keeps the term alive: call [`drive_for`](Self::drive_for) or
    /// another call at least every third of the TTL, or use a `Shared`. See `guide::election`.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub fn campaign(
        &mut self,
        name: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<Lease, LockError> {
        let retry = self.driver.engine().default_retry();
        self.lock(name, options.into().campaigning(retry))
    }

    /// Ends a term before its time: the next candidate is told, and follows within two round trips.
    /// The same as [`unlock`](Self::unlock).
    ///
    /// # Errors
    ///
    /// As [`unlock`](Self::unlock). [`UnlockError::NotHeld`]: the term was over before, so another
    /// may have led at the same time as this process believed to.
    pub fn resign(&mut self, term: Lease) -> Result<Unlocked, UnlockError> {
        self.unlock(term)
    }

    /// Who leads the election `name`, and since when; of any other lock, who holds it. Costs one round
    /// trip to the slowest node, at most `node_timeout`.
    ///
    /// Whether there is a leader is counted by the votes of the nodes. What it is called is its own
    /// claim, which is believed only where it has the token of the lock.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::ReservedKey`] and those of [`query`](Self::query).
    pub fn leader(&mut self, name: impl AsRef<[u8]>) -> Result<Led, LockError> {
        let query = Query::leader(&self.driver.wire_key(name)?);
        Ok(Led::read(&self.query(&query)?, 0, self.driver.quorum()))
    }

    /// Observes who leads the election `name`: [`Observer::next`] gives each change. It asks as
    /// [`leader`](Self::leader) does, once per `pace` (at least 1 ms; some hundred milliseconds suit
    /// most), so what lasts for less than that may be missed.
    pub fn observe(&mut self, name: impl AsRef<[u8]>, pace: Duration) -> Observer<'_> {
        Observer { sighting: Sighting::new(name.as_ref(), pace), client: self }
    }
}

/// Who leads an election, change by change: see [`Client::observe`].
#[derive(Debug)]
pub struct Observer<'client> {
    client: &'client mut Client,
    sighting: Sighting,
}

impl Observer<'_> {
    /// Waits for the next change, and drives the client meanwhile. The first call gives what is
    /// seen at once. `None` where nothing has changed within `limit`; the call may take a
    /// `node_timeout` longer.
    ///
    /// A change is another leader, none, or the name of one that had none. That too few nodes answer
    /// to know is no change.
    ///
    /// # Errors
    ///
    /// As [`Client::leader`].
    pub fn next(&mut self, limit: Duration) -> Result<Option<Led>, LockError> {
        let end = now() + limit;
        loop {
            let until = self.sighting.due.min(end);
            self.client.read()?;
            self.client.discard();
            while now() < until {
                self.client.pass(Some(until))?;
                self.client.discard();
            }
            let time = now();
            if time < self.sighting.due {
                return Ok(None);
            }
            self.sighting.begin(time);
            let seen = self.client.leader(&self.sighting.key)?;
            if let Some(news) = self.sighting.take(seen) {
                return Ok(Some(news));
            }
        }
    }
}
