//! The client for many threads: the promises for its calls, its queues and its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{
    Client, Config, ExtendError, Guard, LockError, LockOptions, Retry, UnlockError, Unlocked,
};
use redbolt_embedded::Nodes;

use super::common::{
    Clients as _, Cluster, FOREIGN, PATIENCE, SLACK, TTL, ends_within, eventually, fresh_config,
    given_away, ms, timed, wait_released,
};

/// Nodes in the process, and a client of them.
pub(crate) fn embedded(settings: impl FnOnce(Config) -> Config) -> (Nodes, Client) {
    let nodes = Nodes::start(3).expect("ports are free");
    let shared = Client::connect(settings(fresh_config(nodes.urls()))).expect("nodes are fit");
    (nodes, shared)
}

/// Options with patience for a lock that another client may hold.
pub(crate) fn patient(ttl: Duration) -> LockOptions {
    LockOptions::new(ttl).retry(Retry::every(ms(5), ms(5))).timeout(PATIENCE)
}

/// How many calls are under way, and how many keys the client holds or wants.
pub(crate) fn in_use(shared: &Client) -> (usize, usize) {
    let text = format!("{shared:?}");
    let number = |name: &str| {
        let rest = text.split(name).nth(1).expect("the field is there");
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    };
    (number("calls: "), number("keys: "))
}

/// Waits until the client counts nothing and the nodes have no key.
#[track_caller]
pub(crate) fn is_clean(nodes: &Nodes, shared: &Client) {
    assert!(eventually(PATIENCE, || in_use(shared) == (0, 0)), "{shared:?}");
    let keys = || (0..3).map(|node| nodes.key_count(node).expect("it runs")).sum::<usize>();
    assert!(eventually(PATIENCE, || keys() == 0), "{} keys left", keys());
}

#[test]
fn the_client_is_used_by_its_names() -> Result<(), Box<dyn std::error::Error>> {
    let (nodes, shared) = embedded(|config| config.local_turns(64));
    let mut guard: Guard = shared.try_lock("sku:42", TTL).wait()?;
    assert!(guard.is_valid() && guard.remaining() > TTL / 2 && guard.deadline() > redbolt::now());
    assert!(guard.votes().count() >= 2 && guard.votes().bits() > 0 && guard.key() == b"sku:42");
    guard.extend(TTL).wait()?;
    guard.extend_if_due().wait()?;
    assert!(matches!(shared.try_lock("sku:42", TTL).wait(), Err(LockError::Taken(_))));
    let token = guard.token().ok_or("a guard has a token")?;
    assert_eq!(
        shared.leader("sku:42").wait()?.leader().map(|by| by.token.clone()),
        Some(token.clone())
    );
    assert_eq!(guard.unlock().wait()?, Unlocked::Released);
    assert_eq!(shared.unlock_token("sku:42", &token).wait(), Err(UnlockError::NotHeld));

    let acquire = LockOptions::new(TTL).min_validity(ms(1)).timeout(TTL);
    let token = shared.try_lock("sku:45", acquire).wait()?.detach().wait()?;
    drop(shared.adopt("sku:45", &token, TTL).wait()?);
    drop(shared.lock("sku:45", patient(TTL)).wait()?);
    let sold = shared.with_lock("sku:44", TTL, |held| {
        held.extend_if_due().wait()?;
        Ok::<_, Box<dyn std::error::Error>>(held.remaining() > Duration::ZERO)
    })?;
    assert!(sold);
    assert_eq!(shared.nodes().wait().len(), 3);
    assert!(matches!(shared.try_lock("k", ms(1)).wait(), Err(LockError::InvalidTtl { .. })));
    assert!(matches!(shared.try_lock("", TTL).wait(), Err(LockError::InvalidKey { len: 0 })));
    is_clean(&nodes, &shared);
    assert_eq!(shared.shutdown(PATIENCE).wait(), 0);
    Ok(())
}

#[test]
fn handles_and_guards_go_where_they_may() {
    fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Client>();
    send_and_sync::<Guard>();
}

#[test]
fn ten_threads_of_a_hundred_increments_on_one_handle_lose_none() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let retry = Retry::every(ms(1), ms(3)).timeout(Duration::from_secs(60));
    let shared = Client::connect(cluster.config().retry(retry)).expect("servers are fit");
    let counter = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..10 {
            let (shared, counter) = (shared.clone(), &counter);
            scope.spawn(move || {
                for turn in 0..100 {
                    let guard = shared.lock("counter", TTL).wait().expect("its turn comes");
                    let value = counter.load(Ordering::Relaxed);
                    thread::yield_now();
                    assert!(guard.is_valid());
                    counter.store(value + 1, Ordering::Relaxed);
                    // The test reads some guards, unlocks some, and drops some.
                    if turn % 7 == 0 {
                        let _ = guard.token().unwrap();
                    }
                    if turn % 3 == 0 {
                        assert_eq!(guard.unlock().wait().expect("ours"), Unlocked::Released);
                    }
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), 1_000);
    assert!(eventually(PATIENCE, || cluster.holders("counter") == 0));
    assert!(eventually(PATIENCE, || in_use(&shared) == (0, 0)), "{shared:?}");
}

/// How many commands the servers have run.
fn commands(cluster: &Cluster) -> u64 {
    let count = |info: Vec<u8>| {
        let info = String::from_utf8_lossy(&info).into_owned();
        let rest = info.split("total_commands_processed:").nth(1).expect("INFO says so");
        rest.lines().next().expect("a line").trim().parse::<u64>().expect("a number")
    };
    cluster.nodes().map(|node| count(node.command(&["INFO", "stats"]))).sum()
}

/// While another client holds the lock, one of the waiters asks for it. Once a waiter has it, the
/// lock goes round.
#[test]
fn a_thousand_waiters_cost_the_servers_what_one_does() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(cluster.config()).expect("servers are fit");
    let other = cluster.client();
    let held = other.try_lock("k", TTL).wait().expect("the lock is free");
    let served = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..1_000 {
            let (shared, served) = (shared.clone(), &served);
            let wait = move || {
                let retry = Retry::every(ms(20), ms(0)).timeout(Duration::from_secs(60));
                let guard = shared.lock("k", LockOptions::new(TTL).retry(retry)).wait();
                assert!(guard.expect("its turn comes").is_valid());
                served.fetch_add(1, Ordering::Relaxed);
            };
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, wait).expect("memory");
        }
        assert!(eventually(PATIENCE, || in_use(&shared).0 == 1_000));
        let (begin, before) = (redbolt::now(), commands(&cluster));
        thread::sleep(ms(1_000));
        // The test's own INFO counts as a command on each of three nodes. One waiter's safety poll
        // asks five to ten times per second.
        let asked = commands(&cluster) - before;
        let seconds = begin.until(redbolt::now()).as_secs_f64();
        assert!(asked as f64 <= 3.0 + 20.0 * seconds, "{asked} commands in {seconds} s");
        let before = cluster.set_count(0);
        assert_eq!(held.unlock().wait().expect("ours"), Unlocked::Released);
        assert!(eventually(Duration::from_secs(60), || {
            // A blocking holder reads on with its next call, and wakes the waiters that it finds.
            wait_released(&other, ms(1));
            served.load(Ordering::Relaxed) == 1_000
        }));
        let asked = cluster.set_count(0) - before;
        assert!(asked <= 1_000 / 65 + 4, "{asked} SETs for 1,000 turns");
    });
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
}

#[test]
fn a_lease_goes_to_the_next_waiter_without_a_word_to_any_node() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(cluster.config().local_turns(3)).expect("servers are fit");
    let guard = shared.try_lock("k", TTL).wait().expect("the lock is free");
    assert!(eventually(PATIENCE, || cluster.holders("k") == 3));
    let value = cluster.values("k");
    let sets = cluster.set_count(0);
    thread::scope(|scope| {
        let mut guard = Some(guard);
        for turn in 1..=4 {
            let waiter = scope.spawn(|| shared.lock("k", patient(TTL)).wait());
            assert!(eventually(PATIENCE, || in_use(&shared).0 == 1), "it waits");
            if turn % 2 == 0 {
                drop(guard.take());
            } else {
                let unlocked = guard.take().expect("a guard").unlock().wait().expect("ours");
                assert_eq!(unlocked, Unlocked::Released);
            }
            let next = waiter.join().expect("no panic").expect("its turn comes");
            assert!(next.is_valid() && next.key() == b"k");
            // The client hands the lock on for three turns, then others have their chance.
            if turn < 4 {
                assert_eq!((cluster.set_count(0), cluster.values("k")), (sets, value.clone()));
            } else {
                // The lock is won with the votes of the other nodes.
                let is_new = || cluster.set_count(0) > sets && cluster.values("k") != value;
                assert!(eventually(PATIENCE, is_new), "turn {turn}");
            }
            guard = Some(next);
        }
    });
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
}

/// Whether the lease of `guard` goes to the next waiter, which asks for `next`, and how long it
/// has.
fn is_handed_on(
    shared: &Client,
    guard: Guard,
    next: LockOptions,
    give: impl FnOnce(Guard),
) -> (bool, Duration) {
    let token = || {
        let led = shared.leader("k").wait().expect("nodes answer");
        led.leader().map(|by| by.token.clone())
    };
    let before = token();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| shared.lock("k", next).wait());
        assert!(eventually(PATIENCE, || in_use(shared).0 == 1), "it waits");
        give(guard);
        let next = waiter.join().expect("no panic").expect("its turn comes");
        (token() == before, next.remaining())
    })
}

#[test]
fn a_lease_is_handed_on_only_where_its_token_is_unknown_and_enough_of_it_is_left() {
    let (nodes, shared) = embedded(|config| config);
    let guard = || shared.lock("k", patient(TTL)).wait().expect("the lock is free");
    let handed = |guard, next, give: fn(Guard)| {
        let result = is_handed_on(&shared, guard, next, give);
        is_clean(&nodes, &shared);
        result
    };
    assert!(handed(guard(), patient(TTL), drop).0);

    assert!(!handed(guard(), patient(TTL), |guard| drop(guard.token().unwrap())).0, "read");
    let (key, token) = given_away(guard());
    let adopted = shared.adopt(&key, &token, TTL).wait().unwrap();
    assert!(!handed(adopted, patient(TTL), drop).0, "adopted");

    let kept = || patient(TTL).keep_alive();
    assert!(!handed(guard(), kept(), drop).0, "wanted kept alive");
    assert!(!handed(shared.lock("k", kept()).wait().unwrap(), patient(TTL), drop).0, "kept alive");
    assert!(
        handed(shared.lock("k", kept()).wait().unwrap(), kept(), drop).0,
        "kept alive for both"
    );

    // No lease is handed on that has less than half of a new lease's time, or less than was asked
    // for.
    let short = || shared.lock("k", patient(TTL / 4)).wait().expect("the lock is free");
    let (is_handed, remaining) = handed(short(), patient(TTL), drop);
    assert!(!is_handed && remaining > TTL / 2, "{remaining:?}");
    assert!(handed(short(), patient(TTL / 4), drop).0);
    let choosy = patient(TTL / 4).min_validity(TTL / 4 - ms(500));
    thread::scope(|scope| {
        let guard = short();
        assert!(eventually(PATIENCE, || guard.remaining() < TTL / 4 - ms(500)));
        scope.spawn(|| assert!(!handed(guard, choosy, drop).0, "min_validity"));
    });

    let (_nodes, shared) = embedded(|config| config.local_turns(0));
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    assert!(!is_handed_on(&shared, guard, patient(TTL), drop).0, "switched off");
}

/// Each waiting call began after the first deadline of this lease.
#[test]
fn a_lease_that_is_kept_alive_beyond_its_first_deadline_is_handed_on() {
    let (nodes, shared) = embedded(|config| config);
    let kept = || patient(ms(1_000)).keep_alive();
    let guard = shared.lock("k", kept()).wait().expect("the lock is free");
    let first = guard.deadline();
    assert!(eventually(PATIENCE, || redbolt::now() > first) && guard.is_valid());
    assert!(is_handed_on(&shared, guard, kept(), drop).0);
    is_clean(&nodes, &shared);
}

#[test]
fn a_lease_that_is_given_away_leaves_its_waiters_to_the_nodes() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| shared.lock("k", patient(TTL)).wait());
        assert!(eventually(PATIENCE, || in_use(&shared).0 == 1), "it waits");
        let (key, token) = given_away(guard);
        assert_eq!(shared.unlock_token(key, token).wait().unwrap(), Unlocked::Released);
        drop(waiter.join().unwrap().unwrap());
    });
    is_clean(&nodes, &shared);
}

#[test]
fn a_guard_that_is_never_dropped_keeps_waiters_no_longer_than_its_lease() {
    let (_nodes, shared) = embedded(|config| config);
    let mut guard = shared.try_lock("k", ms(1_000)).wait().unwrap();
    guard.extend(ms(2_000)).wait().unwrap();
    let deadline = guard.deadline();
    std::mem::forget(guard);
    let next = shared.lock("k", patient(TTL)).wait().expect("the lease ends");
    assert!(next.is_valid() && redbolt::now() >= deadline, "two at once");
}

#[test]
fn a_wait_ends_at_its_own_deadline_wherever_it_stands() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("held", TTL).wait().unwrap();
    let other = &Client::connect(fresh_config(nodes.urls())).unwrap();
    let _held = other.try_lock("elsewhere", TTL).wait().unwrap();
    thread::scope(|scope| {
        // The first waiter in one queue and the competitor for the other lock wait longest.
        for (key, wait) in
            [("held", 900), ("elsewhere", 900), ("held", 300), ("elsewhere", 300), ("held", 600)]
        {
            let wait = ms(wait);
            let shared = &shared;
            scope.spawn(move || {
                let acquire = patient(TTL).timeout(wait);
                let (result, elapsed) = timed(|| shared.lock(key, acquire).wait());
                let Err(LockError::Taken(ballot)) = result else { panic!("{key}: {result:?}") };
                assert!(elapsed <= wait + SLACK, "{key} {wait:?}: {elapsed:?}");
                // The competitor may know earlier that no further attempt can be in time.
                assert!(elapsed >= wait || key == "elsewhere", "{key} {wait:?}: {elapsed:?}");
                assert_eq!(ballot.granted(), 0);
            });
        }
        let shared = &shared;
        scope.spawn(move || {
            let short = LockOptions::new(TTL).retry(Retry::every(ms(40), ms(10)).timeout(ms(150)));
            let (result, elapsed) = timed(|| shared.lock("held", short).wait());
            assert!(matches!(result, Err(LockError::Taken(_))), "{result:?}");
            assert!(elapsed <= ms(150) + SLACK, "{elapsed:?}");
        });
    });
    assert!(guard.is_valid());
    drop(guard);
    drop(shared.try_lock("held", TTL).wait().expect("nobody waits any more"));
}

#[test]
fn a_call_beyond_the_limit_is_refused_and_does_not_block() {
    let (nodes, shared) = embedded(|config| config.in_flight_max(3));
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| shared.lock("k", patient(TTL)).wait().map(drop)))
            .collect();
        assert!(eventually(PATIENCE, || in_use(&shared).0 == 3));
        ends_within(ms(0), || {
            assert!(matches!(shared.lock("other", TTL).wait(), Err(LockError::Full)));
            assert!(matches!(shared.leader("k").wait(), Err(LockError::Full)));
            assert!(matches!(shared.adopt("k", "t", TTL).wait(), Err(ExtendError::Full)));
            assert!(matches!(shared.unlock_token("k", "t").wait(), Err(UnlockError::Full)));
        });
        // The client releases a guard all the same.
        let _ = guard.token().unwrap();
        assert!(matches!(guard.unlock().wait(), Err(UnlockError::Full)));
        for waiter in waiters {
            waiter.join().unwrap().expect("its turn comes");
        }
    });
    is_clean(&nodes, &shared);
}

#[test]
fn the_work_under_a_lock_is_followed_by_its_release_however_it_ends() {
    let (nodes, shared) = embedded(|config| config);
    let failed = shared.with_lock("k", TTL, |_| Err::<(), _>(LockError::Cancelled));
    assert!(matches!(failed, Err(LockError::Cancelled)));
    is_clean(&nodes, &shared);
    let work = |_: &mut Guard| -> Result<(), LockError> { panic!("on purpose") };
    let panicked =
        thread::scope(|scope| scope.spawn(|| shared.with_lock("k", TTL, work)).join().is_err());
    assert!(panicked);
    is_clean(&nodes, &shared);
    let (begin, ttl) = (redbolt::now(), ms(1_200));
    let long = shared.with_lock("k", ttl, |held| {
        assert!(eventually(PATIENCE, || begin.until(redbolt::now()) > ttl * 3));
        Ok::<_, LockError>(held.is_valid() && !held.is_lost())
    });
    assert!(matches!(long, Ok(true)), "kept alive for three TTLs: {long:?}");
    let late = shared.with_lock("k", ttl, |held| {
        for node in 0..3 {
            nodes.kill(node).expect("it runs");
        }
        assert!(eventually(PATIENCE, || held.is_lost() && !held.is_valid()));
        Ok::<_, LockError>(())
    });
    assert!(matches!(late, Err(LockError::Lost)), "{late:?}");
}

#[test]
fn a_hung_node_delays_no_call() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let shared = Client::connect(cluster.config().node_timeout(PATIENCE)).expect("servers are fit");
    drop(shared.lock("warm", TTL).wait().unwrap());
    cluster.node(2).freeze();
    // Waiting once for the frozen node would take longer than all rounds together may.
    ends_within(ms(7_000), || {
        for round in 0..50 {
            let mut guard = shared.lock(format!("k:{round}"), TTL).wait().expect("four of five");
            guard.extend(TTL).wait().expect("four of five");
            assert_eq!(guard.unlock().wait().expect("ours"), Unlocked::Released);
        }
    });
    cluster.node(2).thaw();
}

#[test]
fn without_a_quorum_waiters_are_told_so() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(cluster.config().node_timeout(ms(100))).unwrap();
    let mut cluster = cluster;
    cluster.node_mut(0).kill9();
    cluster.node_mut(1).kill9();
    thread::scope(|scope| {
        let waiters: Vec<_> = [900, 600, 600]
            .map(|wait| {
                let shared = &shared;
                scope.spawn(move || shared.lock("k", patient(TTL).timeout(ms(wait))).wait())
            })
            .into_iter()
            .collect();
        for waiter in waiters {
            let result = waiter.join().unwrap();
            assert!(matches!(result, Err(LockError::NoQuorum(_))), "{result:?}");
        }
    });
}

#[test]
fn shutdown_sends_what_is_owed_and_ends_every_call() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    cluster.occupy(0, "elsewhere");
    cluster.occupy(1, "elsewhere");
    let shared = Client::connect(cluster.config()).expect("servers are fit");
    let guards: Vec<_> =
        (0..20).map(|index| shared.try_lock(format!("k:{index}"), TTL).wait().unwrap()).collect();
    let kept = shared.try_lock("kept", TTL).wait().unwrap();
    thread::scope(|scope| {
        let queued = scope.spawn(|| shared.lock("kept", patient(TTL)).wait());
        let competing = scope.spawn(|| shared.lock("elsewhere", patient(TTL)).wait());
        assert!(eventually(PATIENCE, || in_use(&shared).0 == 2));
        drop(guards);
        assert_eq!(shared.shutdown(PATIENCE).wait(), 0);
        assert!(matches!(queued.join().unwrap(), Err(LockError::Closed)));
        let result = competing.join().unwrap();
        assert!(matches!(result, Err(LockError::Cancelled | LockError::Closed)), "{result:?}");
    });
    let left = cluster.nodes().map(|node| node.command(&["KEYS", "k:*"]));
    assert!(left.into_iter().all(|keys| keys == b"*0\r\n"));
    assert_eq!(cluster.holders("kept"), 3, "a guard that lives is not touched");
    assert_eq!(cluster.node(0).get("elsewhere").as_deref(), Some(FOREIGN.as_bytes()));
    drop(kept);
    let clone = shared.clone();
    assert!(matches!(clone.lock("k", TTL).wait(), Err(LockError::Closed)));
    assert!(matches!(clone.unlock_token("k", "t").wait(), Err(UnlockError::Closed)));
    assert_eq!(clone.shutdown(PATIENCE).wait(), 0);
    assert!(clone.nodes().wait().is_empty());
}

#[test]
fn the_thread_ends_with_the_last_handle_and_guard() {
    let Some(cluster) = Cluster::mixed(1) else { return };
    let shared = Client::connect(cluster.config().client_name("the-last")).unwrap();
    let connected = || {
        let list = cluster.node(0).command(&["CLIENT", "LIST"]);
        String::from_utf8_lossy(&list).contains(":the-last:")
    };
    assert!(connected());
    let clone = shared.clone();
    let guard = clone.try_lock("k", TTL).wait().unwrap();
    drop(shared);
    drop(clone);
    // A guard keeps the thread alive, which has to release it.
    assert!(connected() && cluster.holders("k") == 1);
    drop(guard);
    assert!(eventually(PATIENCE, || !connected() && cluster.holders("k") == 0));
}

#[test]
fn a_handle_that_is_opened_locks_as_soon_as_its_nodes_are_there() {
    let nodes = Nodes::start(3).unwrap();
    let shared = Client::open(fresh_config(nodes.urls())).unwrap();
    drop(shared.lock("k", patient(TTL)).wait().expect("nodes are there"));
    is_clean(&nodes, &shared);
    let nobody = fresh_config(vec!["127.0.0.1:1".to_owned()]).connect_timeout(ms(100));
    assert!(Client::connect(nobody.clone()).is_err());
    let shared = Client::open(nobody).unwrap();
    let result = ends_within(ms(200), || shared.lock("k", patient(TTL).timeout(ms(200))).wait());
    assert!(matches!(result, Err(LockError::NoQuorum(_))), "{result:?}");
}
