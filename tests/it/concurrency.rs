//! Mutual exclusion as its users see it: many threads, one lock, and nodes that come and go.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::Instant;
use redbolt::driver::{Driver, Outcome};
use redbolt::inspect::NodeState;
use redbolt::{Client, Config, LockError, RestartGuard, Retry};

use super::common::{Clients as _, Cluster, PATIENCE, StopAtEnd, TTL, eventually, ms};

/// The proof by arithmetic: each thread reads, waits a little, and writes. Any overlap loses an
/// increment.
fn increments(cluster: &Cluster, threads: u64, each: u64) {
    let counter = AtomicU64::new(0);
    let lost = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let retry = Retry::every(ms(1), ms(3)).timeout(Duration::from_secs(60));
                let config = cluster.config().retry(retry);
                let client = Client::connect(config).expect("fresh servers are admitted");
                for _ in 0..each {
                    let result = client.with_lock("counter", TTL, |held| {
                        let value = counter.load(Ordering::Relaxed);
                        thread::yield_now();
                        assert!(held.is_valid());
                        counter.store(value + 1, Ordering::Relaxed);
                        Ok::<_, LockError>(())
                    });
                    if result.is_err() {
                        lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(lost.into_inner(), 0);
    assert_eq!(counter.into_inner(), threads * each);
    assert!(eventually(PATIENCE, || cluster.holders("counter") == 0));
}

#[test]
fn ten_threads_of_a_hundred_increments_lose_none() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    increments(&cluster, 10, 100);
}

#[test]
fn increments_on_three_nodes_and_on_one_lose_none() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    increments(&cluster, 5, 60);
    let Some(cluster) = Cluster::mixed(1) else { return };
    increments(&cluster, 5, 60);
}

/// The times for which a client held the lock: from the call's return to the deadline or the
/// release.
type Tenures = Mutex<Vec<(Instant, Instant)>>;

/// Takes the lock again and again, and keeps it for a moment, or now and then until its end.
fn take_turns(config: Config, ttl: Duration, is_over: &AtomicBool, tenures: &Tenures) {
    let client = Client::open(config).expect("a client");
    let mut turn = 0_u32;
    while !is_over.load(Ordering::Relaxed) {
        let Ok(lease) = client.try_lock("k", ttl).wait() else {
            // Attempts in step may split the votes again and again.
            thread::sleep(Duration::from_micros(redbolt::now().as_nanos() % 50_000));
            continue;
        };
        let begin = redbolt::now();
        thread::sleep(ms(1));
        let end = lease.deadline().min(redbolt::now());
        if begin < end {
            tenures.lock().expect("no panic").push((begin, end));
        }
        turn += 1;
        // The thread unlocks some leases and drops some; a result may be unknown where nodes hang.
        if !turn.is_multiple_of(3) {
            let _ = lease.unlock().wait();
        }
    }
}

#[track_caller]
fn check_one_at_a_time(tenures: Tenures) {
    let mut tenures = tenures.into_inner().expect("no panic");
    tenures.sort_unstable();
    for (one, next) in tenures.iter().zip(tenures.iter().skip(1)) {
        assert!(one.1 <= next.0, "two at once: {one:?} {next:?}");
    }
}

/// Nodes hang and connections break; no node loses its memory.
#[test]
fn the_lock_has_one_holder_while_nodes_hang_and_connections_break() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let (is_over, tenures) = (AtomicBool::new(false), Tenures::default());
    let config = || cluster.config().node_timeout(ms(100));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| take_turns(config(), ms(800), &is_over, &tenures));
        }
        let _stop = StopAtEnd(&is_over);
        let entered = || tenures.lock().unwrap().len();
        let mut stuck = None;
        for round in 0..10 {
            let (one, other) = (cluster.node(round % 5), cluster.node((round + 2) % 5));
            let before = entered();
            one.freeze();
            other.hang_up();
            if !eventually(PATIENCE, || entered() > before + 5) {
                stuck = Some(round);
            }
            one.thaw();
        }
        assert_eq!(stuck, None, "one hanging node of five stops nobody");
    });
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0), "{:?}", cluster.values("k"));
    check_one_at_a_time(tenures);
}

/// Nodes come back empty. A second holder is kept out because they do not vote for a while.
#[test]
fn the_lock_has_one_holder_while_nodes_restart_empty() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let (is_over, tenures) = (AtomicBool::new(false), Tenures::default());
    let ttl = ms(300);
    let guarded = cluster.config().restart_guard(RestartGuard::On).max_ttl(ttl);
    let watcher = Client::open(guarded.clone()).unwrap();
    let all_vote = || {
        eventually(PATIENCE, || {
            drop(watcher.try_lock("watcher", ms(50)).wait());
            watcher.nodes().wait().iter().all(|node| node.state == NodeState::Admitted)
        })
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            let config = guarded.clone().node_timeout(ms(50));
            scope.spawn(|| take_turns(config, ttl, &is_over, &tenures));
        }
        let _stop = StopAtEnd(&is_over);
        let mut stuck = !all_vote();
        for index in 0..3 {
            let before = tenures.lock().unwrap().len();
            cluster.node_mut(index).restart();
            stuck |= !eventually(PATIENCE, || tenures.lock().unwrap().len() > before + 5);
            stuck |= !all_vote();
        }
        assert!(!stuck, "a restarted node votes again after its time");
    });
    check_one_at_a_time(tenures);
}

/// One driver, hundreds of operations at once: each ends once, with its own result.
#[test]
fn hundreds_of_operations_in_flight_end_once_each() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let mut driver = Driver::standalone(cluster.config().in_flight_max(400)).unwrap();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        driver.nodes().iter().all(|node| node.state == NodeState::Admitted)
    }));
    let mut tokens = HashSet::new();
    for round in 0..10 {
        // Every key is asked for twice: one operation wins, the other learns that the key is taken.
        let mut open: HashSet<_> =
            (0..400).map(|index| driver.try_lock(format!("{}", index / 2), TTL).unwrap()).collect();
        assert_eq!(open.len(), 400);
        assert!(matches!(driver.try_lock("full", TTL), Err(LockError::Full)));
        let (mut leases, mut taken) = (Vec::new(), 0);
        assert!(eventually(PATIENCE, || {
            driver.drive();
            while let Some(done) = driver.completion() {
                assert!(open.remove(&done.id), "ended twice");
                let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
                match result {
                    Ok(lease) => leases.push(lease),
                    Err(error) => {
                        assert!(matches!(error, LockError::Taken(_)), "{error}");
                        taken += 1;
                    }
                }
            }
            open.is_empty()
        }));
        assert_eq!((leases.len(), taken), (200, 200), "round {round}");
        assert_eq!(driver.in_flight(), 0);
        let keys: HashSet<_> = leases.iter().map(|lease| lease.key().to_vec()).collect();
        assert_eq!(keys.len(), 200);
        for lease in leases {
            assert!(lease.is_valid() && tokens.insert(lease.token()), "a token was drawn twice");
        }
    }
    driver.shutdown(PATIENCE);
    assert!(cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n"));
}
