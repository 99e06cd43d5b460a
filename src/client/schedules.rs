//! The table, its calls and its wakers under a checker of thread schedules: each run draws a new
//! random order. A run that hangs shows a lost wake-up, or a mutex that a thread locks twice.
//!
//! All code is production code, but [`Network`] for the driver and nodes, and [`Bed`] for sleep.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, JoinHandle, Thread};

use super::calls::{CallIndex, CallResult, Listener, notify_all};
use super::driving::{Drive, DriveEnd, Inner, Owner, Threads};
use super::policy::Policy;
use super::table::{Command, Place, Table, Task};
use super::{Call, Client, Guard, wait_all};
use crate::config::Config;
use crate::driver::clock::now;
use crate::driver::{Lease, LeasePool};
use crate::engine::{Engine, LeaseId};
use crate::error::{LockError, Unlocked};
use crate::options::LockOptions;
use crate::quorum::NodeMask;
use crate::retry::Retry;
use crate::time::Instant;
use crate::token::TokenBytes;

/// Schedules per scenario, setup and kind of checker, unless `REDBOLT_SCHEDULES=N` says otherwise.
const SCHEDULES: usize = 300;
/// So long that no call ends by time.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// A key of another client. That client watches the key `SEEN`, and holds its own key while this
/// client holds `SEEN`.
const OTHERS: &[u8] = b"others";
const SEEN: &[u8] = b"seen";

/// The I/O thread's side, and the nodes'.
struct Network {
    engine: Engine,
    pool: LeasePool,
    held: HashMap<Vec<u8>, LeaseId>,
    leases: u32,
    /// Calls for the key that another client holds.
    late: Vec<CallIndex>,
    commands: Vec<Command>,
    replies: Vec<(CallIndex, CallResult)>,
    tell: Vec<Listener>,
    is_over: bool,
}

impl Network {
    fn new(config: &Config) -> Self {
        Self {
            engine: Engine::new(config, [0; 32], now()).expect("a fit configuration"),
            pool: LeasePool::new(),
            held: HashMap::new(),
            leases: 0,
            late: Vec::new(),
            commands: Vec::new(),
            replies: Vec::new(),
            tell: Vec::new(),
            is_over: false,
        }
    }

    fn acquire(&mut self, key: &[u8]) -> Result<Lease, LockError> {
        self.collect();
        if self.held.contains_key(key) {
            return Err(LockError::Cancelled);
        }
        self.leases += 1;
        let id = LeaseId::nth(self.leases as usize);
        self.held.insert(key.to_vec(), id);
        let (token, ends, votes) = (TokenBytes::Drawn([0; 20]), now() + LONG, NodeMask::first(1));
        Ok(self.pool.make(id, (key, &token, None), Box::default(), ends, votes).0)
    }

    /// Releases the leases that their holders dropped.
    fn collect(&mut self) {
        let held = &mut self.held;
        self.pool.take_dropped(|dropped, _| held.retain(|_, id| *id != dropped));
    }

    /// Another client lets go of its key as soon as it sees that this client's key `SEEN` is free.
    fn answer_late(&mut self) {
        self.collect();
        if !self.held.contains_key(SEEN) {
            for call in std::mem::take(&mut self.late) {
                let result = self.acquire(OTHERS);
                self.replies.push((call, CallResult::Lock(result)));
            }
        }
    }

    /// Hands results out and takes commands. Returns the end of the drive, if it ends here.
    fn exchange(&mut self, inner: &Inner, drive: Option<&mut Drive>) -> Option<DriveEnd> {
        let (caller_drives, Self { engine, replies, commands, tell, .. }) = (drive.is_some(), self);
        let end = inner.with(|table| {
            if caller_drives && table.leaves_for_task() {
                return Some(table.end_drive(None, 0));
            }
            table.hand_out(engine, false, now(), replies, tell);
            let end =
                drive.and_then(|drive| table.end_drive_if_done(drive, now(), || Instant::MAX));
            if end.is_none() {
                table.take_commands(commands);
            }
            end
        });
        let wakes_task = tell.iter().any(|listener| matches!(listener, Listener::Task(_)));
        assert!(!(caller_drives && wakes_task), "the driving caller wakes a task");
        notify_all(tell.drain(..));
        end
    }

    /// Carries the commands out. Returns when something is due next; `None` once the end has come.
    fn carry_out(&mut self) -> Option<Instant> {
        for command in std::mem::take(&mut self.commands) {
            match command {
                Command::Call(..) if self.is_over => {}
                Command::Call(call, Task::Acquire { key, .. }, _) if key.as_slice() == OTHERS => {
                    self.late.push(call);
                }
                Command::Call(call, Task::Acquire { key, .. }, _) => {
                    let result = self.acquire(&key);
                    self.replies.push((call, CallResult::Lock(result)));
                }
                Command::Call(call, Task::Unlock { lease }, _) => {
                    drop(lease);
                    self.replies.push((call, CallResult::Unlock(Ok(Unlocked::Released))));
                }
                // A call that its caller gave up has ended by then.
                Command::Call(..) => {}
                Command::Release(lease) => drop(lease),
                Command::Close | Command::Shutdown { .. } => self.is_over = true,
            }
        }
        self.answer_late();
        let due = if self.replies.is_empty() { Instant::MAX } else { Instant::default() };
        (!self.is_over).then_some(due)
    }

    /// The I/O thread drives once.
    fn turn(&mut self, inner: &Inner) -> Option<Instant> {
        assert!(self.exchange(inner, None).is_none(), "no drive ends");
        self.carry_out()
    }

    /// Drives in the place of the I/O thread.
    fn drive(&mut self, inner: &Inner, drive: &mut Drive, sockets: &Bed) -> Option<DriveEnd> {
        if !inner.with(|table| table.take_commands_of_drive(drive, &mut self.commands))
            && let Some(end) = self.exchange(inner, Some(drive))
        {
            return Some(end);
        }
        loop {
            let due = self.carry_out()?;
            drive.has_written = true;
            if drive.waits() {
                sockets.sleep(inner.with(|table| table.fall_asleep(Place::Sockets, due)));
            }
            if let Some(end) = self.exchange(inner, Some(drive)) {
                return Some(end);
            }
        }
    }
}

/// A place to sleep that no `unpark` reaches.
#[derive(Default)]
struct Bed {
    is_called: Mutex<bool>,
    called: Condvar,
}

impl Bed {
    fn sleep(&self, until: Instant) {
        let mut is_called = self.is_called.lock().expect("no panic");
        while !*is_called && until > now() {
            is_called = self.called.wait(is_called).expect("no panic");
        }
        *is_called = false;
    }

    fn call(&self) {
        *self.is_called.lock().expect("no panic") = true;
        self.called.notify_one();
    }
}

/// The threads that work with the network: the I/O thread, or a caller that drives.
#[derive(Default)]
struct Workers {
    network: Mutex<Option<Network>>,
    gate: Bed,
    sockets: Bed,
}

impl Threads for Workers {
    fn wake(&self, place: Place) {
        match place {
            Place::Gate => self.gate.call(),
            Place::Sockets => self.sockets.call(),
        }
    }

    fn are_here(&self) -> bool {
        true
    }

    fn drive(&self, inner: &Inner, drive: &mut Drive) -> Option<DriveEnd> {
        let mut network = self.network.lock().expect("no panic");
        let drive = |network: &mut Network| network.drive(inner, drive, &self.sockets);
        network.as_mut().and_then(drive)
    }
}

impl Workers {
    /// The I/O thread's loop, until the client ends. Returns how many locks are left.
    fn serve(&self, inner: &Inner) -> usize {
        loop {
            if let Some(until) = inner.with(|table| table.leaves_sockets_until(now())) {
                if until == Instant::MAX {
                    self.gate.sleep(until);
                } else {
                    thread::yield_now();
                }
                continue;
            }
            let mut network = self.network.lock().expect("no panic");
            let Some(due) = network.as_mut().and_then(|network| network.turn(inner)) else {
                break;
            };
            let (place, until) = inner.with(|table| table.io_thread_falls_asleep(due));
            if place == Place::Sockets {
                self.sockets.sleep(until);
            } else {
                drop(network);
                self.gate.sleep(until);
            }
        }
        let mut network = self.network.lock().expect("no panic").take().expect("it is there");
        inner.with(|table| table.close(&mut network.tell));
        // A node that is away answers its releases once it sees that this client's key `SEEN` is
        // free.
        while network.turn(inner).is_some() || network.held.contains_key(SEEN) {
            self.sockets.sleep(inner.with(|table| table.fall_asleep(Place::Sockets, Instant::MAX)));
        }
        drop(inner.with(|table| table.end(0, &mut network.tell)));
        notify_all(network.tell.drain(..));
        // A real I/O thread would have given these calls up.
        network.replies.clear();
        network.collect();
        network.held.len()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// How often leases are handed on.
    local_turns: u32,
    /// Callers that block drive one after another.
    pub(super) promotes: bool,
}

/// A client, and its I/O thread.
pub(super) fn start(setup: Setup) -> (Client, JoinHandle<usize>) {
    let config = Config::new(["h:1"]).expect("an address");
    let config = config.local_turns(setup.local_turns).max_ttl(LONG * 3);
    let table = Table::new(Policy::new(&config).expect("a fit configuration"), 64, setup.promotes);
    let workers = Arc::new(Workers::default());
    let inner = Arc::new(Inner::new(table, Arc::clone(&workers) as Arc<dyn Threads>));
    *workers.network.lock().expect("no panic") = Some(Network::new(&config));
    let worker = thread::spawn({
        let (inner, workers) = (Arc::clone(&inner), Arc::clone(&workers));
        move || workers.serve(&inner)
    });
    (Client { owner: Arc::new(Owner { inner }) }, worker)
}

/// Ends the client, and checks that no call, waiter or lock is left.
pub(super) fn ends(shared: Client, worker: JoinHandle<usize>) {
    let inner = Arc::clone(&shared.owner.inner);
    drop(shared);
    assert_eq!(worker.join().expect("a sound I/O thread"), 0, "no lock is left without a holder");
    assert_eq!(inner.with(|table| table.calls.in_use()), 0, "no call is left without a caller");
}

fn patient() -> LockOptions {
    LockOptions::new(LONG).retry(Retry::default()).timeout(LONG)
}

/// A section that at most one thread may be in.
#[derive(Default)]
struct Room(AtomicUsize);

impl Room {
    fn enter(&self, guard: Guard) {
        assert!(guard.is_valid());
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        thread::yield_now();
        self.0.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
    }
}

/// Runs its own code, which uses the client, when it is called and when it is dropped.
struct Meddler(Client, Thread);

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        let _ = self.0.voters();
        self.1.unpark();
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        let _ = self.0.voters();
    }
}

fn meddler(shared: &Client) -> Waker {
    Waker::from(Arc::new(Meddler(shared.clone(), thread::current())))
}

/// Awaits a call with a new waker at each poll.
fn block_on<T>(shared: &Client, mut future: Pin<&mut impl Future<Output = T>>) -> T {
    loop {
        let waker = meddler(shared);
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

/// Begins a call that has to wait.
fn begun<T>(shared: &Client, mut call: Call<'static, T>) -> Call<'static, T> {
    let waker = meddler(shared);
    let poll = Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(poll.is_pending(), "it has to wait");
    call
}

/// Runs the scenario with leases that are handed on always, never, and once in a row.
pub(super) fn each(scenario: fn(Setup)) {
    let wanted = std::env::var("REDBOLT_SCHEDULES").ok();
    let schedules = wanted.map_or(SCHEDULES, |text| text.parse().expect("a number"));
    for (local_turns, promotes) in [(64, false), (0, true), (1, false), (1, true)] {
        let setup = Setup { local_turns, promotes };
        shuttle::check_random(move || scenario(setup), schedules);
        shuttle::check_pct(move || scenario(setup), schedules, 3);
    }
}

#[test]
fn threads_that_lock_and_unlock_hold_one_at_a_time_and_all_get_their_turn() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let room = Arc::new(Room::default());
        let threads: Vec<_> = (0..3)
            .map(|nth| {
                let (shared, room) = (shared.clone(), Arc::clone(&room));
                thread::spawn(move || {
                    let guard = shared.lock("k", patient()).wait().expect("its turn comes");
                    if nth == 0 {
                        guard.unlock().wait().expect("it is ours");
                    } else {
                        room.enter(guard);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        ends(shared, worker);
    });
}

#[test]
fn a_lock_that_lingers_is_taken_again_by_one_at_a_time_and_released_at_the_end() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let room = Arc::new(Room::default());
        let threads: Vec<_> = (0..2)
            .map(|nth| {
                let (shared, room) = (shared.clone(), Arc::clone(&room));
                thread::spawn(move || {
                    for turn in 0..2 {
                        let guard =
                            shared.lock("k", patient().linger(LONG)).wait().expect("its turn");
                        if turn == nth {
                            guard.unlock().wait().expect("it is ours");
                        } else {
                            room.enter(guard);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        ends(shared, worker);
    });
}

/// The holder of the lock that a driving caller waits for makes other calls before it unlocks.
#[test]
pub(super) fn a_call_does_not_wait_for_the_end_of_another() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let seen = shared.lock(SEEN, patient()).wait().expect("it is free");
        let waiter = thread::spawn({
            let shared = shared.clone();
            move || drop(shared.lock(OTHERS, patient()).wait().expect("its turn comes"))
        });
        let guard = shared.lock("free", patient()).wait().expect("it is free");
        guard.unlock().wait().expect("it is ours");
        let guard = block_on(&shared, pin!(shared.lock("free", patient())));
        drop(guard.expect("it is free"));
        drop(seen);
        waiter.join().expect("no panic");
        ends(shared, worker);
    });
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let first = shared.lock("k", patient()).wait().expect("it is free");
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..3)
            .map(|nth| {
                // Each call has its place before the next one begins.
                let call = begun(&shared, shared.lock("k", patient()));
                let (shared, order) = (shared.clone(), Arc::clone(&order));
                thread::spawn(move || {
                    let guard = if nth == 1 { call.wait() } else { block_on(&shared, pin!(call)) };
                    let guard = guard.expect("its turn comes");
                    order.lock().expect("no panic").push(nth);
                    drop(guard);
                })
            })
            .collect();
        drop(first);
        waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
        assert_eq!(*order.lock().expect("no panic"), [0, 1, 2]);
        ends(shared, worker);
    });
}

#[test]
fn a_call_that_is_given_up_at_any_point_holds_nothing_and_loses_nobody_its_wake_up() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let room = Arc::new(Room::default());
        let threads: Vec<_> = (0..4)
            .map(|nth| {
                let (shared, room) = (shared.clone(), Arc::clone(&room));
                thread::spawn(move || {
                    let mut call = pin!(shared.lock("k", patient()));
                    if nth < 2 {
                        return room.enter(block_on(&shared, call).expect("its turn comes"));
                    }
                    for _ in 2..nth {
                        let waker = meddler(&shared);
                        let mut context = Context::from_waker(&waker);
                        if let Poll::Ready(guard) = call.as_mut().poll(&mut context) {
                            return room.enter(guard.expect("its turn has come"));
                        }
                        thread::yield_now();
                    }
                    let waker = meddler(&shared);
                    let _ = call.as_mut().poll(&mut Context::from_waker(&waker));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        ends(shared, worker);
    });
}

/// Three calls of one thread beside one of another, which gives up after some time.
#[test]
fn calls_that_are_waited_for_together_all_end_and_a_wait_that_is_over_holds_nothing() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let other = thread::spawn({
            let shared = shared.clone();
            move || {
                // A wait with no time ends at once, in most schedules before its call does.
                let mut call = shared.lock("b", patient());
                let guard = (0..9).find_map(|_| call.wait_for(Duration::ZERO));
                drop(guard.map(|guard| guard.expect("its turn has come")));
            }
        });
        let guards = wait_all(["a", "b", "c"].map(|key| shared.lock(key, patient())));
        let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("its turn")).collect();
        let unlocked = wait_all(guards.into_iter().map(Guard::unlock));
        assert!(unlocked.into_iter().all(|unlocked| unlocked.is_ok()));
        other.join().expect("no panic");
        ends(shared, worker);
    });
}

/// A driving caller learns of the end, and leaves the rest to the I/O thread. A lock that is given
/// back then has to wake that thread.
#[test]
fn a_lock_that_is_given_back_at_the_end_wakes_the_io_thread() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let seen = shared.lock(SEEN, patient()).wait().expect("it is free");
        let other = thread::spawn({
            let shared = shared.clone();
            move || drop(shared.lock("k", patient()).wait())
        });
        let end = thread::spawn({
            let shared = shared.clone();
            move || assert_eq!(shared.shutdown(LONG).wait(), 0)
        });
        while shared.try_lock("free", LONG).wait().is_ok() {
            thread::yield_now();
        }
        drop(seen);
        other.join().expect("no panic");
        end.join().expect("no panic");
        drop(shared);
        assert!(worker.join().expect("a sound I/O thread") <= 1);
    });
}

#[test]
fn every_call_ends_when_the_client_does() {
    each(|setup| {
        let (shared, worker) = start(setup);
        let room = Arc::new(Room::default());
        let threads: Vec<_> = (0..3)
            .map(|nth| {
                let (shared, room) = (shared.clone(), Arc::clone(&room));
                thread::spawn(move || {
                    if nth == 0 {
                        return assert_eq!(shared.shutdown(LONG).wait(), 0);
                    }
                    match shared.lock("k", patient()).wait() {
                        Ok(guard) => room.enter(guard),
                        Err(error) => assert!(matches!(error, LockError::Closed), "{error}"),
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        drop(shared);
        // A guard that outlived the client keeps its lock until the end of its TTL.
        assert!(worker.join().expect("a sound I/O thread") <= 1);
    });
}

/// Whether a lease goes to a waiting call without a message to any node, in whatever order.
fn is_handed_on(expected: bool, ttl: Duration, prepare: fn(&mut Guard)) {
    let scenario = move || {
        let (shared, worker) = start(Setup { local_turns: 64, promotes: false });
        let mut guard = shared.lock("k", patient()).wait().expect("it is free");
        let first = guard.id();
        let call = begun(&shared, shared.lock("k", LockOptions { ttl, ..patient() }));
        prepare(&mut guard);
        drop(guard);
        let is_same = call.wait().expect("its turn comes").id() == first;
        ends(shared, worker);
        assert_eq!(is_same, expected);
    };
    shuttle::check_random(scenario, 1);
}

#[test]
fn a_lease_goes_to_the_call_that_waits() {
    is_handed_on(true, LONG, |_| {});
}

#[test]
pub(super) fn a_lease_on_which_a_call_works_is_not_handed_on() {
    is_handed_on(false, LONG, |guard| guard.is_busy = true);
}

#[test]
pub(super) fn a_lease_whose_token_was_read_is_not_handed_on() {
    is_handed_on(false, LONG, |guard| assert!(guard.token().is_some()));
}

#[test]
pub(super) fn a_lease_of_which_the_next_holder_wants_more_is_not_handed_on() {
    // The next call wants half of what a lease of its own would have.
    is_handed_on(false, LONG * 3, |_| {});
}
