//! The futures of the client: on any runtime and on none, and given up at any point.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};

use redbolt::inspect::{Query, Reply};
use redbolt::{Client, Config, ConnectError, Guard, LockError, LockOptions, UnlockError, Unlocked};
use redbolt_embedded::Nodes;

use super::client::{embedded, in_use, is_clean, patient};
use super::common::{Clients as _, Cluster, PATIENCE, TTL, eventually, fresh_config, ms};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor that can run a future.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = Box::pin(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

type Locking<'shared> = Pin<Box<dyn Future<Output = Result<Guard, LockError>> + Send + 'shared>>;

/// A call for the lock that was polled once, and waits.
fn begin<'shared>(shared: &'shared Client, key: &'static str) -> Locking<'shared> {
    let mut future: Locking<'shared> = Box::pin(shared.lock(key, patient(TTL)));
    assert!(peek(&mut future).is_none(), "nobody waits for it yet");
    future
}

/// The result, if the call has ended.
fn peek(future: &mut Locking<'_>) -> Option<Result<Guard, LockError>> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// Waits for the guard that a call wins.
#[track_caller]
fn won(future: &mut Locking<'_>) -> Guard {
    let mut result = None;
    assert!(eventually(PATIENCE, || {
        result = peek(future);
        result.is_some()
    }));
    result.expect("it was awaited").expect("its turn has come")
}

async fn increment(shared: Client, counter: Arc<AtomicU64>, turns: u64) {
    for turn in 0..turns {
        let mut guard = shared.lock("counter", patient(TTL)).await.expect("its turn");
        let value = counter.load(Ordering::Relaxed);
        if turn % 10 == 0 {
            guard.extend(TTL).await.expect("a quorum");
        }
        assert!(guard.is_valid());
        counter.store(value + 1, Ordering::Relaxed);
        if turn % 3 == 0 {
            assert_eq!(guard.unlock().await.expect("ours"), Unlocked::Released);
        }
    }
}

#[test]
fn futures_run_on_tokio() {
    let (nodes, shared) = embedded(|config| config);
    let counter = Arc::new(AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let task = || tokio::spawn(increment(shared.clone(), Arc::clone(&counter), 50));
        let tasks: Vec<_> = (0..20).map(|_| task()).collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), 1_000);
    is_clean(&nodes, &shared);
}

#[test]
fn futures_run_on_smol() {
    let (nodes, shared) = embedded(|config| config);
    let counter = Arc::new(AtomicU64::new(0));
    smol::block_on(async {
        let task = || smol::spawn(increment(shared.clone(), Arc::clone(&counter), 50));
        let tasks: Vec<_> = (0..20).map(|_| task()).collect();
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), 1_000);
    is_clean(&nodes, &shared);
}

#[test]
fn futures_run_on_a_loop_of_ten_lines() {
    let (nodes, shared) = embedded(|config| config);
    let counter = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| block_on(increment(shared.clone(), Arc::clone(&counter), 50)));
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), 250);
    is_clean(&nodes, &shared);
    let everything = async {
        let mut guard = shared.try_lock("k", TTL).await?;
        guard.extend_if_due().await.expect("it is fresh");
        let token = guard.detach().await.expect("it is settled");
        let adopted = shared.adopt("k", &token, TTL).await.expect("it is there");
        let answers = shared.query(&Query::new().all(&[b"TIME"])).await?;
        assert_eq!(answers.len(), shared.nodes().await.len());
        drop(adopted);
        let unlocked = shared.unlock_token("k", token).await;
        assert_eq!(unlocked, Err(UnlockError::NotHeld));
        drop(shared.lock("k", TTL).await?);
        Ok::<_, LockError>(shared.shutdown(PATIENCE).await)
    };
    assert_eq!(block_on(everything).expect("a quorum"), 0);
}

#[test]
fn a_future_does_nothing_before_it_is_polled() {
    let (nodes, shared) = embedded(|config| config);
    let future = shared.lock("k", TTL);
    assert_eq!(in_use(&shared), (0, 0));
    drop(future);
    is_clean(&nodes, &shared);
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    let (nodes, shared) = embedded(|config| config.local_turns(5));
    let mut guard = shared.try_lock("k", TTL).wait().unwrap();
    let mut waiters: Vec<_> = (0..20).map(|_| begin(&shared, "k")).collect();
    while !waiters.is_empty() {
        let mut first = waiters.remove(0);
        assert!(waiters.iter_mut().all(|waiter| peek(waiter).is_none()));
        drop(guard);
        guard = won(&mut first);
        assert!(waiters.iter_mut().all(|waiter| peek(waiter).is_none()), "out of turn");
    }
    drop(guard);
    is_clean(&nodes, &shared);
}

/// Each of five waiters gives up in turn, while a guard is held here. The same while another client
/// holds the lock, so that the first waiter competes.
#[test]
fn a_waiter_that_gives_up_leaves_the_others_where_they_stand() {
    let (nodes, shared) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    for holder in [&shared, &other] {
        for gone in 0..5 {
            let guard = holder.lock("k", patient(TTL)).wait().unwrap();
            let mut waiters: Vec<_> = (0..5).map(|_| begin(&shared, "k")).collect();
            drop(waiters.remove(gone));
            drop(guard);
            for mut waiter in waiters {
                drop(won(&mut waiter));
            }
            is_clean(&nodes, &shared);
        }
        let guard = holder.lock("k", patient(TTL)).wait().unwrap();
        let waiters: Vec<_> = (0..5).map(|_| begin(&shared, "k")).collect();
        drop(waiters);
        drop(guard);
        is_clean(&nodes, &shared);
    }
}

/// The waiter's turn had come, and it never looked.
#[test]
fn a_waiter_that_gives_up_with_the_lock_in_hand_wakes_the_next() {
    let (nodes, shared) = embedded(|config| config);
    for local_first in [true, false] {
        let other = Client::connect(fresh_config(nodes.urls())).unwrap();
        let holder = if local_first { &shared } else { &other };
        let guard = holder.try_lock("k", TTL).wait().unwrap();
        let mut waiters: Vec<_> = (0..4).map(|_| begin(&shared, "k")).collect();
        drop(guard);
        // The first waiter is told, and gone before it can take the lock that it won.
        assert!(eventually(PATIENCE, || {
            let nodes =
                shared.query(&Query::new().all(&[b"GET", b"k"])).wait().expect("nodes answer");
            nodes.iter().any(|node| node.replies != [Reply::Nil])
        }));
        thread::sleep(ms(20));
        drop(waiters.remove(0));
        drop(waiters.remove(1));
        for mut waiter in waiters {
            drop(won(&mut waiter));
        }
        is_clean(&nodes, &shared);
    }
}

/// The call is given up after any number of polls, from before the first one to after the lock was
/// won.
#[test]
fn a_call_that_is_given_up_at_any_point_leaves_nothing() {
    let (nodes, shared) = embedded(|config| config);
    for point in 0..300_u32 {
        let mut future = Box::pin(async {
            let mut guard = shared.lock("k", patient(TTL)).await?;
            let _ = guard.extend(TTL).await;
            let _ = guard.unlock().await;
            Ok::<_, LockError>(())
        });
        for _ in 0..point {
            if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                break;
            }
            thread::yield_now();
        }
        drop(future);
    }
    is_clean(&nodes, &shared);
    drop(shared.try_lock("k", TTL).wait().expect("the lock is free"));
}

/// Threads want one lock, among tasks that give up at random.
#[test]
fn waiters_that_come_and_go_lose_no_wake_up() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(cluster.config().local_turns(8)).unwrap();
    let (inside, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..6_u32 {
            let (shared, inside, served) = (&shared, &inside, &served);
            scope.spawn(move || {
                let mut chance = seed;
                for _ in 0..200 {
                    chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if chance >> 30 == 0 {
                        let mut future: Locking<'_> =
                            Box::pin(shared.lock("k-other", patient(TTL)));
                        if peek(&mut future).is_none() {
                            thread::yield_now();
                        }
                    }
                    if chance >> 31 == 0 {
                        let mut future: Locking<'_> = Box::pin(shared.lock("k", patient(TTL)));
                        drop(peek(&mut future));
                        continue;
                    }
                    let guard = shared.lock("k", patient(TTL)).wait().expect("its turn comes");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    served.fetch_add(1, Ordering::Relaxed);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                }
            });
        }
    });
    assert!(served.into_inner() > 100);
    assert!(eventually(PATIENCE, || in_use(&shared) == (0, 0)), "{shared:?}");
    assert!(eventually(PATIENCE, || cluster.holders("k") + cluster.holders("k-other") == 0));
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

/// A caller that blocks is told at once, beside two tasks whose executor panics.
#[test]
fn a_wake_up_that_panics_costs_nobody_else_its_own() {
    let (nodes, shared) = embedded(|config| config);
    (0..3).for_each(|node| nodes.pause(node).unwrap());
    let waker = Waker::from(Arc::new(Panics));
    let mut broken = ["a", "b"].map(|key| Box::pin(shared.try_lock(key, TTL)));
    for call in &mut broken {
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    thread::scope(|scope| {
        let blocked = scope.spawn(|| shared.try_lock("c", TTL).wait().map(drop));
        assert!(eventually(PATIENCE, || in_use(&shared).0 == 3), "{shared:?}");
        (0..3).for_each(|node| nodes.resume(node).unwrap());
        assert!(eventually(PATIENCE, || blocked.is_finished()), "{shared:?}");
        blocked.join().unwrap().expect("its key is free");
    });
    for call in broken {
        drop(block_on(call).expect("its key is free"));
    }
    is_clean(&nodes, &shared);
}

/// The task has the lock, but its executor does not run it.
#[test]
fn a_guard_that_goes_to_a_task_whose_wake_up_panics_is_dropped_and_unlocked_all_the_same() {
    let (nodes, shared) = embedded(|config| config);
    let waker = Waker::from(Arc::new(Panics));
    for unlocks in [false, true] {
        let guard = shared.try_lock("k", TTL).wait().unwrap();
        let mut next = begin(&shared, "k");
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if unlocks {
            assert_eq!(guard.unlock().wait(), Ok(Unlocked::Released));
        } else {
            drop(guard);
        }
        drop(block_on(next).expect("its turn has come"));
    }
    is_clean(&nodes, &shared);
}

/// Records the thread that woke the task.
struct WokenBy(Mutex<Option<ThreadId>>);

impl Wake for WokenBy {
    fn wake(self: Arc<Self>) {
        *self.0.lock().expect("no panic") = Some(thread::current().id());
    }
}

/// An executor may queue a woken task behind the task that runs on that thread, which blocks.
#[test]
fn a_task_is_not_woken_by_a_thread_whose_call_goes_on() {
    let (nodes, shared) = embedded(|config| config);
    let other = &Client::connect(fresh_config(nodes.urls())).unwrap();
    for waits_first in [false, true] {
        // Longer than each wait below, so that the blocking call goes on.
        let held = other.lock("held", 3 * PATIENCE).wait().unwrap();
        let guard = shared.try_lock("lost", LockOptions::new(ms(1_500))).wait().unwrap();
        let [by_free, by_lost] = [(); 2].map(|()| Arc::new(WokenBy(Mutex::new(None))));
        let mut lost = Box::pin(guard.lost());
        let mut waits = || {
            let waker = Waker::from(Arc::clone(&by_lost));
            assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        };
        thread::scope(|scope| {
            let mut free: Locking<'_> = Box::pin(shared.try_lock("free", TTL));
            if waits_first {
                waits();
            }
            let patience = patient(TTL).timeout(3 * PATIENCE);
            let blocked = scope.spawn(|| shared.lock("held", patience).wait().map(drop));
            let calls = 1 + usize::from(waits_first);
            assert!(eventually(PATIENCE, || in_use(&shared).0 == calls), "{shared:?}");
            if !waits_first {
                waits();
                assert!(eventually(PATIENCE, || {
                    let waker = Waker::from(Arc::clone(&by_free));
                    free = Box::pin(shared.try_lock("free", TTL));
                    // A task that is served before it can leave its waker is not woken.
                    free.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
                }));
            }
            for by in [&by_free, &by_lost].into_iter().skip(usize::from(waits_first)) {
                let woken = || *by.0.lock().unwrap();
                assert!(eventually(PATIENCE, || woken().is_some()), "nobody woke it: {shared:?}");
                assert_ne!(woken(), Some(blocked.thread().id()));
            }
            drop(block_on(free).expect("its key is free"));
            assert!(!blocked.is_finished());
            held.unlock().wait().unwrap();
            blocked.join().unwrap().expect("its turn comes");
        });
        drop(lost);
        drop(guard);
    }
    is_clean(&nodes, &shared);
}

#[test]
fn a_handle_connects_without_blocking() {
    let nodes = Nodes::start(3).unwrap();
    let config = || Config::new(nodes.urls()).unwrap().node_timeout(ms(2_000));
    let shared = Client::open(config()).unwrap();
    block_on(shared.ready(PATIENCE)).unwrap();
    assert!(shared.is_ready());
    drop(shared.try_lock("k", TTL).wait().unwrap());
    shared.shutdown(PATIENCE).wait();

    (0..2).for_each(|node| nodes.pause(node).unwrap());
    let other = Client::open(config()).unwrap();
    let mut given_up = Box::pin(other.ready(PATIENCE));
    let poll = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending(), "two nodes are silent");
    drop(given_up);

    (0..2).for_each(|node| nodes.kill(node).unwrap());
    let other = Client::open(config()).unwrap();
    let error = block_on(other.ready(ms(500))).unwrap_err();
    assert!(matches!(error, ConnectError::NoQuorum(_)), "{error}");
}

#[test]
fn a_wait_for_readiness_may_be_given_up_and_ends_with_the_handle() {
    let nodes = Nodes::start(3).unwrap();
    (0..2).for_each(|node| nodes.kill(node).unwrap());
    let config = Config::new(nodes.urls()).unwrap().in_flight_max(1);
    let shared = Client::open(config).unwrap();
    let mut given_up = Box::pin(shared.ready(PATIENCE));
    let poll = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending(), "two of three are away");
    let full = block_on(shared.ready(PATIENCE)).unwrap_err();
    assert!(full.to_string().contains("in_flight_max"), "{full}");
    drop(given_up);
    // Its place is free again, long before its time is over.
    let error = || block_on(shared.ready(ms(1))).unwrap_err();
    assert!(eventually(PATIENCE / 2, || matches!(error(), ConnectError::NoQuorum(_))));

    let mut waits = Box::pin(shared.ready(PATIENCE));
    let poll = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending(), "two of three are away");
    shared.shutdown(ms(10)).wait();
    let error = block_on(waits).unwrap_err();
    assert!(error.to_string().contains("is shut down"), "{error}");
}
