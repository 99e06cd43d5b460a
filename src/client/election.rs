//! Elections: a term of leadership is a lock that is kept alive, with its holder's name beside it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Client;
use super::call::Call;
use super::calls::CallResult;
use super::guard::Guard;
use super::request::{self, CallRequest, LockRequest};
use crate::error::LockError;
use crate::leader::{Led, Sighting};
use crate::options::{LockOptions, Share};
use crate::query::Query;

impl Client {
    /// Waits until this client leads the election `name`, and begins its term: a
    /// [`lock`](Self::lock) that is kept alive and [announced](LockOptions::announced). Without a
    /// `retry` or timeout in the options it waits for ever. If a leader dies, another follows
    /// within the TTL of the options at the latest.
    ///
    /// The client leads as long as [`Guard::is_valid`] says so: check it, or [`Guard::remaining`],
    /// right before each effect. A process that stood still beyond its term sees that at its first
    /// look. [`Guard::lost`] waits for the end of the term. [`Guard::unlock`] resigns: the client
    /// tells the next candidate, which follows within two round trips. See `guide::election`.
    ///
    /// Calls of one process for one name are candidates like any others: each has its own term.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). [`LockError::InvalidKeys`] for a lock with slots.
    pub fn campaign(
        &self,
        name: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Call<'static, Result<Guard, LockError>> {
        let options = options.into().campaigning(self.owner.inner.policy.retry);
        if options.share != Share::Whole {
            let error = LockError::InvalidKeys { why: "an election takes one key without slots" };
            return self
                .call(CallRequest::Ended(Some(CallResult::Lock(Err(error)))), request::locked);
        }
        self.call(CallRequest::Lock(LockRequest::new(name.as_ref(), options)), request::locked)
    }

    /// The leader of the election `name`, and since when it leads; for any other lock, its holder.
    /// Costs one round trip to the slowest node, at most `node_timeout`.
    ///
    /// The votes of the nodes say whether there is a leader. The leader has written its name
    /// itself, and the name counts only beside the token of the lock.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::ReservedKey`] and the errors of
    /// [`query`](Self::query).
    pub fn leader(&self, name: impl AsRef<[u8]>) -> Call<'static, Result<Led, LockError>> {
        let request = match self.wire_key(name) {
            Ok(key) => CallRequest::asking(Query::leader(&key)),
            Err(error) => CallRequest::Ended(Some(CallResult::Answers(Err(error)))),
        };
        self.call(request, request::led)
    }

    /// Observes the leader of the election `name`: [`Observer::next_change`] gives each change. The
    /// observer asks as [`leader`](Self::leader) does, once per `pace` (at least 1 ms; some hundred
    /// milliseconds suit most programs). So it may miss a leader that leads for less than that.
    #[must_use]
    pub fn observe(&self, name: impl AsRef<[u8]>, pace: Duration) -> Observer {
        Observer { client: self.clone(), sighting: Sighting::new(name.as_ref(), pace) }
    }
}

/// The leaders of an election, change by change: see [`Client::observe`].
pub struct Observer {
    client: Client,
    sighting: Sighting,
}

impl Observer {
    /// The next change; the first call at once gives the state that the nodes show. Dropping the
    /// call loses nothing: the next one gives the change. With [`Call::wait_for`] the wait has a
    /// limit.
    ///
    /// A change is another leader, no leader, or the name of a leader that had none. It is no
    /// change if too few nodes answer.
    ///
    /// # Errors
    ///
    /// As [`Client::leader`].
    pub fn next_change(&mut self) -> Call<'_, Result<Led, LockError>> {
        let owner = Arc::clone(&self.client.owner);
        Call::new(owner, CallRequest::Observe(&mut self.sighting), request::observed)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("sighting", &self.sighting).finish_non_exhaustive()
    }
}
