//! A server stands still while a client goes on. The client's debts to it are bounded, and paid
//! when it comes back. They harm no other client's keys, and delay no lock at the other servers.

use std::time::Duration;

use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Driver, Outcome};
use redbolt::inspect::{NodeHealth, NodeState};
use redbolt::{Lease, Unlocked};

use redbolt_rig::uninterrupted;

use super::common::{Cluster, FOREIGN, Kind, PATIENCE, RealServer, eventually, fresh_config, ms};

/// Debts that a node may have.
const DEBTS_MAX: usize = 65_536;
/// Answers that a client may await from a node: so many releases go to the socket before any is a
/// debt.
const PENDING_MAX: usize = 32_768;
/// Locks that are released beyond both bounds.
const BEYOND: usize = 6_000;
const LOCKS: usize = PENDING_MAX + DEBTS_MAX + BEYOND;
/// The TTL of the locks that are released first, so that the test sees their keys end. A slow machine
/// needs a longer one.
const TTL_SHORT: Duration = Duration::from_secs(45);
/// The TTL of all other locks, which must not end during the test.
const TTL_LONG: Duration = Duration::from_secs(600);
/// How many of the keys another client has taken over on the frozen node.
const FOREIGN_KEYS: usize = 500;
/// A busy machine may keep the servers from answering a whole batch for seconds.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);
/// Operations under way at once.
const BATCH: usize = 1_000;
/// The most bytes that a batch of releases beyond the bound may leave allocated.
const GROWTH_MAX: i64 = 256 << 10;

struct Loop {
    driver: Driver,
    poll: Poll,
    events: Events,
}

impl Loop {
    fn open(cluster: &Cluster) -> Self {
        let poll = Poll::new().expect("a poll");
        let config = fresh_config(cluster.urls()).node_timeout(NODE_TIMEOUT).max_ttl(TTL_LONG);
        let driver = Driver::new(config, poll.registry(), 0..4).expect("a driver");
        Self { driver, poll, events: Events::with_capacity(64) }
    }

    fn pass(&mut self) {
        let wait = self.driver.timeout().map_or(ms(100), |wait| wait.min(ms(100)));
        uninterrupted(|| self.poll.poll(&mut self.events, Some(wait))).expect("a poll");
        for event in &self.events {
            self.driver.ready(event);
        }
        self.driver.drive();
    }

    fn lock_all(&mut self, keys: impl Iterator<Item = usize>, ttl: Duration) -> Vec<Lease> {
        let keys: Vec<usize> = keys.collect();
        let mut leases = Vec::with_capacity(keys.len());
        for batch in keys.chunks(BATCH) {
            for &key in batch {
                self.driver.try_lock(name(key), ttl).expect("room");
            }
            let wanted = leases.len() + batch.len();
            while leases.len() < wanted {
                self.pass();
                while let Some(done) = self.driver.completion() {
                    let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
                    leases.push(result.expect("two nodes answer"));
                }
            }
        }
        leases
    }

    fn unlock_all(&mut self, leases: &mut Vec<Lease>, count: usize) {
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            for lease in leases.drain(..batch) {
                self.driver.unlock(lease).expect("room");
            }
            let mut open = batch;
            while open > 0 {
                self.pass();
                while let Some(done) = self.driver.completion() {
                    assert!(
                        matches!(done.result, Outcome::Unlock(Ok(Unlocked::Released))),
                        "{done:?}"
                    );
                    open -= 1;
                }
            }
            left -= batch;
            assert!(self.frozen().debts <= DEBTS_MAX);
        }
    }

    /// The health of the node that stands still.
    fn frozen(&self) -> NodeHealth {
        self.driver.nodes().swap_remove(2)
    }
}

fn name(key: usize) -> String {
    format!("debt:{key}")
}

fn count(server: &RealServer) -> usize {
    let reply = String::from_utf8(server.command(&["DBSIZE"])).expect("text");
    reply.trim().trim_start_matches(':').parse().expect("a count")
}

#[test]
fn a_frozen_server_is_owed_no_more_than_the_bound_and_paid_when_it_thaws() {
    let Some(cluster) = Cluster::start(&[Kind::Redis86, Kind::Valkey81, Kind::Valkey91], &[])
    else {
        return;
    };
    let frozen = cluster.node(2);
    let mut run = Loop::open(&cluster);
    assert!(eventually(PATIENCE, || {
        run.pass();
        run.driver.nodes().iter().all(|node| node.state == NodeState::Admitted)
    }));
    let early = PENDING_MAX + 2 * BEYOND;
    let began = redbolt::now();
    let later = run.lock_all(early..LOCKS, TTL_LONG);
    let short = TTL_SHORT.max(began.until(redbolt::now()) * 8).min(TTL_LONG);
    let mut leases = run.lock_all(0..early, short);
    let first_end = leases[0].deadline();
    leases.extend(later);
    let is_everywhere = eventually(PATIENCE, || {
        run.pass();
        count(frozen) == leases.len()
    });
    assert!(is_everywhere, "{} of {} keys, {:?}", count(frozen), leases.len(), run.frozen());
    let mut wire = frozen.connect();
    for key in early..early + FOREIGN_KEYS {
        let reply = wire.ask(&["SET", &name(key), FOREIGN, "PX", "600000"]).unwrap();
        assert_eq!(reply, b"+OK\r\n");
    }

    frozen.freeze();
    // The node owes an answer, and has owed it for long enough.
    let probe = run.lock_all([usize::MAX].into_iter(), TTL_LONG);
    assert!(eventually(PATIENCE, || {
        run.pass();
        run.frozen().state == NodeState::Stalled
    }));
    run.unlock_all(&mut leases, LOCKS - BATCH);
    assert_eq!((run.frozen().debts, run.frozen().debts_dropped > 0), (DEBTS_MAX, true));
    let grown = allocation_counter::measure(|| run.unlock_all(&mut leases, BATCH));
    assert!(grown.bytes_current < GROWTH_MAX, "{grown:?}");
    drop(probe);
    run.pass();
    let dropped = usize::try_from(run.frozen().debts_dropped).unwrap();
    assert!((BEYOND..early).contains(&dropped), "{dropped}");

    let thawed_at = redbolt::now();
    frozen.thaw();
    let mut during = 0;
    while run.frozen().debts > 0 {
        // The client wins each lock at its one attempt, whatever the third node has to do.
        let mut lease = run.lock_all([usize::MAX - 1 - during].into_iter(), TTL_LONG);
        run.unlock_all(&mut lease, 1);
        during += 1;
    }
    println!(
        "{dropped} dropped, {during} locks in {:?} of paying",
        thawed_at.until(redbolt::now())
    );
    assert!(during > 10, "only {during} locks while the debts were paid");
    let is_paid = eventually(PATIENCE, || {
        run.pass();
        count(frozen) <= dropped + FOREIGN_KEYS
    });
    assert!(is_paid, "{} keys", count(frozen));
    assert!(redbolt::now() < first_end, "too slow to tell what was deleted from what ended");
    assert_eq!(count(frozen), dropped + FOREIGN_KEYS, "deleted, and no more than that");
    assert!(eventually(PATIENCE, || {
        run.pass();
        run.frozen().state == NodeState::Admitted
    }));
    for key in early..early + FOREIGN_KEYS {
        assert_eq!(frozen.get(&name(key)).as_deref(), Some(FOREIGN.as_bytes()));
    }
    assert!(eventually(2 * short, || count(frozen) == FOREIGN_KEYS), "{}", count(frozen));
    assert_eq!((count(cluster.node(0)), count(cluster.node(1))), (0, 0));
}
