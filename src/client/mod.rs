//! [`Client`]: locks for threads and tasks, over a driver and an I/O thread.
//!
//! Layer: above [`crate::driver`]. It holds no protocol: it queues calls, hands leases over and
//! wakes threads.
//!
//! # Contract
//!
//! - A call ends by its own deadline, with an error if the I/O thread is gone; no call hangs.
//! - A call that the caller gives up, at any point, holds nothing afterwards.
//!
//! # Invariants
//!
//! - No slow work and no foreign code runs under the mutex of the [`table`].
//! - One lease has one guard: handing the lease on moves it, so the previous guard cannot touch it.

mod asking;
#[cfg(all(test, feature = "sim"))]
mod broken;
mod call;
mod calls;
mod counting;
mod driving;
mod election;
#[cfg(feature = "sim")]
pub(crate) mod front;
mod guard;
#[cfg(test)]
mod lingering;
mod policy;
mod queues;
mod request;
mod results;
#[cfg(test)]
mod schedules;
mod span;
mod sync;
mod table;
mod threads;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mio::{Token, Waker};

pub use call::{Call, wait_all};
pub use election::Observer;
pub use guard::Guard;

use crate::agreement::Agreement;
use crate::client_name::ClientId;
use crate::config::{Config, IdleStrategy};
use crate::driver::clock::now;
use crate::driver::{Connecting, Driver, Poller};
use crate::engine::{NodeHealth, Notice};
use crate::error::{ConnectError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::query::{NodeAnswers, Query};
use crate::quorum::{NODES_MAX, NodeMask};
use call::End;
use calls::{CallKind, CallResult};
use driving::{Inner, Owner, Threads};
use policy::Policy;
use request::{CallRequest, LockRequest};
use table::{Table, Task};
use threads::Loop;
use worker::Worker;

/// Redlock for threads and tasks. Clone the client freely: all clones share one set of connections,
/// and one I/O thread that keeps locks alive, reconnects, and serves tasks.
///
/// Each method that asks the nodes returns a [`Call`], to block on or to await;
/// [`connect`](Self::connect) and [`with_lock`](Self::with_lock) block.
///
/// ```no_run
/// use redbolt::{Client, Config};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"];
/// let client = Client::connect(Config::new(nodes)?)?;
/// let workers = (0..8).map(|_| {
///     let client = client.clone();
///     std::thread::spawn(move || {
///         let guard = client.lock("sku:42", Duration::from_secs(10)).wait()?;
///         if guard.remaining() > Duration::from_millis(100) {
///             // ...
///         }
///         Ok::<_, redbolt::LockError>(()) // the guard's drop releases the lock
///     })
/// });
/// for worker in workers.collect::<Vec<_>>() {
///     worker.join().unwrap()?;
/// }
/// client.shutdown(Duration::from_secs(1)).wait();
/// # Ok(())
/// # }
/// ```
///
/// # Waiters of one client
///
/// Calls that wait for one key stand in a queue of the client and its clones, first-in first-out.
/// Only the first of them competes on the network. A thousand waiters cost the nodes no more than
/// one. Each wait still ends at its own deadline. [`try_lock`](Self::try_lock) never waits.
///
/// A guard that is dropped or unlocked hands its lease to the next waiter in the queue, without
/// asking any node, if
///
/// - enough validity is left: at least the `min_validity` of the next waiter, and half of a new
///   lease with that waiter's TTL. [`Guard::remaining`] shows how much is left;
/// - it is [kept alive](LockOptions::keep_alive) if, and only if, the next waiter asked for that;
/// - neither of the two asked for a fence or an announcement;
/// - no caller read its token or gave it away: with the token, that caller could release the lock
///   of the next holder;
/// - it holds one key, and no slot beyond those that the next waiter asked for;
/// - neither `max_extensions` nor `max_hold` is set;
/// - its caller dropped no [`extend`](Guard::extend) or [`detach`](Guard::detach) that was under
///   way;
/// - the client handed it on fewer than [`Config::local_turns`] times in a row. While the client
///   knows that another client waits, the limit is at most 8.
///
/// Otherwise the client releases the lease, and the next waiter competes.
///
/// # Costs
///
/// If no other call is under way, a caller that blocks drives the sockets itself. Until its call is
/// done, it writes, waits and reads in the place of the I/O thread. It does so for the calls that
/// come meanwhile, too. Then no thread has to wake another. The next caller that drives reads the
/// late answers of the nodes beyond the quorum. After 40 ms without calls, the I/O thread reads
/// them.
///
/// Each other call costs up to two more thread switches. The caller wakes the driving thread
/// (a write to an eventfd, unless that thread is awake), and the driving thread wakes the caller.
/// Calls made at the same time go out together, one write per node. The thread that drops a guard
/// releases its lock, if no other thread drives.
///
/// With [`IdleStrategy::Spin`] the caller that drives polls without sleeping while its call lasts.
/// The other blocked callers sleep meanwhile. Unless the strategy is `Park`, they then drive one
/// after another. The I/O thread serves tasks, and never spins. Once warm, a call for one key of up
/// to 32 bytes, without slots, allocates nothing. A longer key costs three allocations.
///
/// An executor's code ([`Waker`](std::task::Waker)) runs on the I/O thread, or on the thread that
/// drops or unlocks a guard or gives a call up. It must not block. If it panics, its own task is
/// not woken.
///
/// Use a client in one process. In the child of a fork its calls end as [`LockError::Closed`],
/// also where a lock lingers, and dropping a guard releases nothing.
///
/// Up to `in_flight_max` calls may be under way, waiting ones included, and as many operations: one
/// per key or slot. A further call fails at once with [`LockError::Full`], except [`Guard::lost`]
/// and [`shutdown`](Self::shutdown).
///
/// # The end
///
/// Once the last clone, guard and call is gone, the I/O thread sends the releases that it owes, for
/// at most `node_timeout`, and ends. No call waits for that. At the end of a program call
/// [`shutdown`](Self::shutdown), which waits.
#[derive(Clone)]
pub struct Client {
    owner: Arc<Owner>,
}

impl Client {
    /// Starts the I/O thread and connects. Blocks until every node is settled (admitted, or known
    /// not to be), or until `node_timeout` after a quorum is ready. A task uses
    /// [`open`](Self::open) and awaits [`ready`](Self::ready).
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoQuorum`] if too few nodes may vote within `connect_timeout`: it says why
    /// for each node, and how long a quarantine still lasts. [`ConnectError::Config`];
    /// [`ConnectError::System`], also if the system starts no thread.
    pub fn connect(config: Config) -> Result<Self, ConnectError> {
        let connecting = Connecting::new(&config, now());
        let client = Self::open(config)?;
        client
            .call(
                CallRequest::Task(CallKind::Connect, Some(Task::Connect(connecting))),
                request::ready,
            )
            .wait()
            .map(|()| client)
    }

    /// Like [`connect`](Self::connect), without waiting for any node. The first calls wait for the
    /// nodes that they need, and [`ready`](Self::ready) waits for a quorum.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] and [`ConnectError::System`].
    pub fn open(config: Config) -> Result<Self, ConnectError> {
        let policy = Policy::new(&config)?;
        let calls_max = config.in_flight_max;
        let promotes = config.idle_strategy != IdleStrategy::Park;
        // The waker's token follows the driver's.
        let token = Token(NODES_MAX + 1);
        #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "for the counts"))]
        let (mut driver, poller) = Poller::open(config)?;
        let waker = Waker::new(poller.registry(), token)?;
        let (threads, gate) = Loop::new(poller.registry(), waker)?;
        let threads = Arc::new(threads);
        let table = Table::new(policy, calls_max, promotes);
        let inner = Arc::new(Inner::new(table, Arc::clone(&threads) as Arc<dyn Threads>));
        #[cfg(feature = "metrics")]
        {
            let table = Arc::clone(&inner);
            let oldest = move |now| table.with(|table| table.oldest(now));
            driver.export_calls(inner.counting.counts(), Box::new(oldest));
        }
        threads.begin(Worker::new(driver, poller, Arc::clone(&inner)));
        let (works, table) = (Arc::clone(&threads), Arc::clone(&inner));
        let thread = thread::Builder::new().name("redbolt".to_owned());
        thread.spawn(move || works.run(gate, &table)).inspect_err(|_| drop(threads.end()))?;
        Ok(Self { owner: Arc::new(Owner { inner }) })
    }

    fn call<'a, T>(&self, request: CallRequest<'a>, end: End<'a, T>) -> Call<'a, T> {
        Call::new(Arc::clone(&self.owner), request, end)
    }

    // ---- locks ----

    /// One attempt at the lock `key`.
    ///
    /// Costs one round trip to the slowest node of the fastest quorum. The call ends at the quorum,
    /// or as soon as no quorum is possible, and in any case after `node_timeout`. If a quorum needs
    /// nodes that still connect, the limit is `connect_timeout`. A fence may take a `node_timeout`
    /// more, and so may each further round trip of a call for [slots](LockOptions::slots). Costs no
    /// round trip if another guard of this client certainly holds the lock, or if the lock
    /// [lingers](LockOptions::linger) at this client.
    ///
    /// # Errors
    ///
    /// [`LockError::Taken`], [`LockError::NoQuorum`] and [`LockError::Expired`], each with the
    /// votes of the nodes. In every case the caller holds nothing. [`LockError::Full`] and
    /// [`LockError::Closed`].
    pub fn try_lock(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Call<'static, Result<Guard, LockError>> {
        let asked = LockRequest::new(key.as_ref(), options.into().once());
        self.call(CallRequest::Lock(asked), request::locked)
    }

    /// Waits for the lock `key` as the `retry` of the options or of the configuration says, by
    /// default for 10 s. It first waits behind earlier calls of this client, and then competes for
    /// the lock. Between attempts the call sleeps until the holder's release wakes it. If no client
    /// can wake it, the call tries again as its [`Retry`](crate::Retry) says.
    ///
    /// # Errors
    ///
    /// The errors of [`try_lock`](Self::try_lock), from the last attempt. If the call's end cuts
    /// that attempt short, the nodes' answers to earlier attempts count, too.
    pub fn lock(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Call<'static, Result<Guard, LockError>> {
        let asked =
            LockRequest::new(key.as_ref(), options.into().patient(self.owner.inner.policy.retry));
        self.call(CallRequest::Lock(asked), request::locked)
    }

    /// One attempt at the locks of all `keys`, 1 to 64 in any order: the caller gets one guard for
    /// all of them, or none.
    ///
    /// The guard ends with the first of its keys to end. Its calls, and its drop, concern all keys:
    /// an extension or a release succeeds if each key has a quorum. It costs one write per node and
    /// one round trip, as for a single key. Each key has its own votes, so several keys and single
    /// keys exclude each other, whatever client takes them.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock); the votes are those of the first key that was not won. A
    /// node that denies all keys by one command does not say which is held:
    /// [`Ballot::key`](crate::Ballot::key) is then `None`. [`LockError::InvalidKeys`] for no key,
    /// more than 64, or a key that appears twice. [`LockError::Full`] if `in_flight_max` leaves no
    /// room for one operation per key and one more.
    pub fn try_lock_all<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: impl Into<LockOptions>,
    ) -> Call<'static, Result<Guard, LockError>> {
        self.call(CallRequest::lock_all(keys, options.into().once()), request::locked)
    }

    /// Waits for the locks of all `keys`, as [`lock`](Self::lock) does for one. Otherwise like
    /// [`try_lock_all`](Self::try_lock_all).
    ///
    /// A denied call keeps the keys that it won, as far as they sort before the first denied key.
    /// It waits for that key, and extends the keys that it keeps meanwhile. So no calls deadlock.
    ///
    /// ```
    /// # use redbolt::{Client, Config};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = redbolt_embedded::Nodes::start(3)?;
    /// # let client = Client::connect(Config::new(nodes.urls())?)?;
    /// let guard = client.lock_all(["account:7", "account:9"], Duration::from_secs(10)).wait()?;
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_lock_all`](Self::try_lock_all).
    pub fn lock_all<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: impl Into<LockOptions>,
    ) -> Call<'static, Result<Guard, LockError>> {
        let options = options.into().patient(self.owner.inner.policy.retry);
        self.call(CallRequest::lock_all(keys, options), request::locked)
    }

    /// Takes the lock `key` as [`lock`](Self::lock) does, runs `work`, and releases the lock on
    /// return, early return and panic. Blocks.
    ///
    /// The engine keeps the lock alive meanwhile; [`Guard::is_lost`] says whether it is lost. If
    /// `work` fails or panics, the caller gets that error or panic, and no other.
    ///
    /// # Errors
    ///
    /// The errors of [`lock`](Self::lock) and of `work`, and [`LockError::Lost`] if the lease ended
    /// before the work did.
    pub fn with_lock<T, E>(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
        work: impl FnOnce(&mut Guard) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<LockError>,
    {
        let mut guard = self.lock(key, options.into().keep_alive()).wait()?;
        let value = work(&mut guard)?;
        let was_valid = guard.is_valid();
        let is_gone = matches!(guard.unlock().wait(), Err(UnlockError::NotHeld));
        if was_valid && !is_gone { Ok(value) } else { Err(LockError::Lost.into()) }
    }

    /// Deletes `key` on every node where it holds `token`: releases a lock that another process
    /// holds or [gave away](Guard::detach). This client tells the client that drew the token, if it
    /// can. If that client keeps the lease alive, it extends the lease at once, and so learns of
    /// the loss. It hands the lease to no further caller. A guard of this client that holds the
    /// lock is over at once. A call that is about to have the lock does not get it.
    ///
    /// The lease of a client that is not told in time may go on, even after
    /// [`Unlocked::Released`]. That takes a node that keeps the key, and another node that ran the
    /// holder's SET but whose answer was lost. The holder gives the key back to that other node.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`] if no quorum holds the token, [`UnlockError::InvalidName`] for a
    /// key or token of impossible length, [`UnlockError::Full`] and [`UnlockError::Closed`].
    pub fn unlock_token(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Call<'static, Result<Unlocked, UnlockError>> {
        let (key, token) = (key.as_ref().to_vec(), token.as_ref().to_vec());
        self.call(
            CallRequest::Task(CallKind::Unlock, Some(Task::UnlockToken { key, token })),
            request::unlocked,
        )
    }

    /// Takes over a lock that another process holds or [gave away](Guard::detach), by extending it
    /// to the TTL of `options` from now. Of the other options, only keep-alive, announced and fence
    /// apply, because they concern the lease itself. The client never hands the lease to another
    /// waiter: others know its token. A TTL that is shorter than what is left of the lock ends the
    /// lock sooner, also for a process that still holds it. A call that is dropped leaves the lock
    /// as it is.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`] if no quorum holds the lock, [`ExtendError::NoQuorum`] if too few
    /// nodes answered: the client deletes nothing, but some nodes may have the new TTL.
    /// [`ExtendError::Expired`] if the lease is over before the caller gets it.
    /// [`ExtendError::Busy`] if this client has the lock, or if a node may still run this client's
    /// delete of the key. [`ExtendError::InvalidName`], [`ExtendError::InvalidTtl`],
    /// [`ExtendError::Full`] and [`ExtendError::Closed`].
    pub fn adopt(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Call<'static, Result<Guard, ExtendError>> {
        self.adopt_all([(key, token)], options)
    }

    /// Takes over the locks of several keys, each by its token ([`Guard::token_of`]), under one
    /// guard. A guard of several keys has no fence. If one key cannot be taken over, the caller
    /// gets no guard. The others stay, with the new TTL. Otherwise like [`adopt`](Self::adopt).
    ///
    /// # Errors
    ///
    /// As [`adopt`](Self::adopt). [`ExtendError::InvalidName`] also for no key, more than 64, or a
    /// key that appears twice.
    pub fn adopt_all<K: AsRef<[u8]>, T: AsRef<[u8]>>(
        &self,
        locks: impl IntoIterator<Item = (K, T)>,
        options: impl Into<LockOptions>,
    ) -> Call<'static, Result<Guard, ExtendError>> {
        let owned = |(key, token): (K, T)| (key.as_ref().to_vec(), token.as_ref().to_vec());
        let (locks, options) = (locks.into_iter().map(owned).collect(), options.into());
        self.call(CallRequest::Adopt { locks, options }, request::adopted)
    }

    // ---- state ----

    /// Sends commands that only read to every connected node. Returns each node's answers, in the
    /// order of the configuration. Takes one round trip to the slowest node, at most
    /// `node_timeout`.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`], also for more than 255 commands to one node; [`LockError::Closed`].
    pub fn query(&self, query: &Query) -> Call<'static, Result<Vec<NodeAnswers>, LockError>> {
        self.call(CallRequest::asking(query.clone()), request::answered)
    }

    /// As [`Driver::wire_key`](crate::driver::Driver::wire_key).
    ///
    /// # Errors
    ///
    /// As [`Driver::wire_key`](crate::driver::Driver::wire_key).
    pub fn wire_key(&self, key: impl AsRef<[u8]>) -> Result<Vec<u8>, LockError> {
        self.owner.inner.policy.wire_key(key.as_ref())
    }

    /// The state of each node, as the client knows it now; it asks no node. Empty once the client
    /// is shut down, or with `in_flight_max` calls under way.
    pub fn nodes(&self) -> Call<'static, Vec<NodeHealth>> {
        self.call(CallRequest::looking(|driver| CallResult::Nodes(driver.nodes())), request::nodes)
    }

    /// The notices about nodes since the last call, each once: see
    /// [`Driver::notice`](crate::driver::Driver::notice). Asks no node. Empty where
    /// [`nodes`](Self::nodes) is.
    pub fn notices(&self) -> Call<'static, Vec<Notice>> {
        let look = |driver: &mut Driver| {
            CallResult::Notices(std::iter::from_fn(|| driver.notice()).collect())
        };
        self.call(CallRequest::looking(look), request::notices)
    }

    /// The id with which the tokens of this client begin, and the settings that all clients of the
    /// same locks must share. Asks no node. `None` where [`nodes`](Self::nodes) is empty.
    pub fn identity(&self) -> Call<'static, Option<(ClientId, Agreement)>> {
        let look = |driver: &mut Driver| {
            let (id, agreement) = driver.identity();
            CallResult::Identity(id, agreement)
        };
        self.call(CallRequest::looking(look), request::identity)
    }

    /// The nodes that may vote, as the client last saw them; none once the client is shut down.
    #[must_use]
    pub fn voters(&self) -> NodeMask {
        self.owner.inner.with(|table| if table.is_closed { NodeMask::EMPTY } else { table.voters })
    }

    /// How many votes make a quorum; with [next nodes](crate::Config::next_nodes) the larger of the
    /// two.
    #[must_use]
    pub fn quorum(&self) -> u32 {
        self.owner.inner.lists().electorate.least()
    }

    /// Whether a quorum may vote: for a readiness endpoint. It wakes no thread, and returns at once
    /// whatever else is under way. [`nodes`](Self::nodes) says why a node does not vote.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.has_quorum(self.voters())
    }

    /// Whether these nodes are a quorum; with [next nodes](crate::Config::next_nodes), of each
    /// list.
    #[must_use]
    pub fn has_quorum(&self, nodes: NodeMask) -> bool {
        self.owner.inner.lists().electorate.among_others().has_quorum(nodes)
    }

    /// Changes the lists of nodes to those of `lists`. The client ignores the other settings there,
    /// and the logins of nodes that it knows. It connects to the new nodes. Once a quorum of each
    /// new list votes, the new lists decide. Until then the present ones decide, and
    /// [`is_exchanging`](Self::is_exchanging) is true. A later call replaces lists that are still
    /// to come.
    ///
    /// After a change, the client makes the next one no sooner than `max_ttl`, the drift and twice
    /// `max_clock_skew` later. Calls under way go on. The next extension of a lease needs a quorum
    /// of each new list; from then on the new lists decide on that lease. The client at once
    /// extends each lease that is kept alive. `docs/servers.md` says in which order all clients
    /// change their lists.
    ///
    /// It costs no round trip.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] unless the present lists and the new ones have one in common, or
    /// for more than 32 nodes, those of earlier lists included. [`ConnectError::System`] as for
    /// [`ready`](Self::ready).
    pub fn set_nodes(&self, lists: &Config) -> Call<'static, Result<(), ConnectError>> {
        let task = Task::SetNodes(Box::new(lists.clone()));
        self.call(CallRequest::Task(CallKind::Connect, Some(task)), request::ready)
    }

    /// Whether the client has lists of nodes that do not decide yet. Asks no node.
    #[must_use]
    pub fn is_exchanging(&self) -> bool {
        self.owner.inner.lists().are_to_change
    }

    /// Waits until a quorum may vote, at most `limit`; done at once if one may now. Nodes that are
    /// away may come back meanwhile: unlike [`connect`](Self::connect), it waits for them until
    /// `limit`.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoQuorum`] at `limit`: it says why for each node. [`ConnectError::System`]
    /// with `in_flight_max` calls under way, or once the client is shut down.
    pub fn ready(&self, limit: Duration) -> Call<'static, Result<(), ConnectError>> {
        self.call(CallRequest::Ready { limit }, request::ready)
    }

    // ---- the end ----

    /// Ends the client and all its clones. No further call begins, and calls under way end with an
    /// error. The I/O thread sends the releases that it owes and waits at most `limit` for the
    /// answers. Returns the number of unconfirmed releases, one per key and node. Their keys end
    /// with their TTL, and so do the keys of guards that still live.
    pub fn shutdown(&self, limit: Duration) -> Call<'static, usize> {
        self.call(CallRequest::Shutdown { limit }, request::owed)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (calls, keys) =
            self.owner.inner.with(|table| (table.calls.in_use(), table.queues.in_use()));
        f.debug_struct("Client")
            .field("nodes", &self.owner.inner.lists().names)
            .field("calls", &calls)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}
