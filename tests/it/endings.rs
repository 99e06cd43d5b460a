//! Ends: a client or driver that ends, at whatever stage its locks are, leaves no key without a
//! holder. It reports how many of its releases the nodes have not answered.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::{
    Client, Config, ExtendError, Guard, Lease, LockError, LockOptions, Retry, Unlocked, now,
};
use redbolt_embedded::Nodes;

use super::common::{
    Cluster, PATIENCE, TTL, all_vote, ends_within, eventually, fresh_config, ms, settled_nodes,
    wait_released,
};

/// The nodes of a test, which stand still and go on at its command.
trait Ground {
    fn urls(&self) -> Vec<String>;
    fn keys(&self, node: usize) -> usize;
    fn pause(&self, node: usize);
    fn resume(&self, node: usize);

    fn is_empty(&self) -> bool {
        (0..3).all(|node| self.keys(node) == 0)
    }

    fn config(&self) -> Config {
        fresh_config(self.urls()).direct_wake(true)
    }
}

impl Ground for Nodes {
    fn urls(&self) -> Vec<String> {
        self.urls()
    }

    fn keys(&self, node: usize) -> usize {
        self.key_count(node).expect("it runs")
    }

    fn pause(&self, node: usize) {
        self.pause(node).expect("it runs");
    }

    fn resume(&self, node: usize) {
        self.resume(node).expect("it runs");
    }
}

impl Ground for Cluster {
    fn urls(&self) -> Vec<String> {
        self.urls()
    }

    fn keys(&self, node: usize) -> usize {
        let size = String::from_utf8(self.node(node).command(&["DBSIZE"])).expect("text");
        size.trim_start_matches(':').trim_end().parse().expect("a number")
    }

    fn pause(&self, node: usize) {
        self.node(node).freeze();
    }

    fn resume(&self, node: usize) {
        self.node(node).thaw();
    }
}

/// How far an acquisition has come when its end comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unwritten,
    Unanswered,
    PartlyAnswered,
    Won,
    /// Its lease is dropped right before the end.
    Dropped,
    /// Another client has the lock: the next attempt is due later.
    BetweenAttempts,
    /// Another client has the lock: the call waits to be woken.
    Waiting,
}

const STAGES: [Stage; 7] = [
    Stage::Unwritten,
    Stage::Unanswered,
    Stage::PartlyAnswered,
    Stage::Won,
    Stage::Dropped,
    Stage::BetweenAttempts,
    Stage::Waiting,
];

impl Stage {
    /// How many nodes stand still while the stage is reached.
    const fn paused(self) -> usize {
        if matches!(self, Self::Unanswered) {
            3
        } else if matches!(self, Self::PartlyAnswered) {
            2
        } else {
            0
        }
    }

    const fn is_held_by_other(self) -> bool {
        matches!(self, Self::BetweenAttempts | Self::Waiting)
    }

    fn acquire(self) -> LockOptions {
        let acquire = LockOptions::new(TTL);
        if self == Self::BetweenAttempts {
            acquire.retry(Retry::every(PATIENCE, ms(0))).direct_wake(false)
        } else if self == Self::Waiting {
            acquire.retry(Retry::every(ms(50), ms(0)).timeout(PATIENCE * 2))
        } else {
            acquire.timeout(Duration::ZERO)
        }
    }
}

/// Runs `end` at each stage to which `begin` brings it, and looks at the keys that are left.
fn leaves_nothing<T>(
    ground: &impl Ground,
    begin: impl Fn(&dyn Ground, Stage) -> T,
    end: impl Fn(T, Duration) -> Option<usize>,
) {
    for stage in STAGES {
        let other = Client::connect(ground.config()).expect("nodes are fit");
        settled_nodes(&other);
        let theirs =
            stage.is_held_by_other().then(|| other.lock("k", TTL).wait().expect("it is free"));
        assert!(theirs.as_ref().is_none_or(|_| eventually(PATIENCE, || ground.keys(2) == 1)));
        let begun = begin(ground, stage);
        let has_answers = stage.paused() == 0;
        // Where every node answers, the end waits for no longer than the slowest of them.
        let owed = end(begun, if has_answers { PATIENCE } else { LIMIT });
        assert!(owed.is_none_or(|owed| (owed == 0) == has_answers), "{stage:?}: {owed:?}");
        (0..stage.paused()).for_each(|node| ground.resume(2 - node));
        if let Some(theirs) = theirs {
            theirs.unlock().wait().expect("it is ours");
            // A waiter that was woken would take the lock now.
            wait_released(&other, PATIENCE);
            std::thread::sleep(ms(20));
        }
        assert!(eventually(PATIENCE, || ground.is_empty()), "{stage:?}: a key of nobody's");
    }
}

/// The longest time that an end waits for nodes that stand still.
const LIMIT: Duration = ms(300);

// ---- the driver ----

fn drive_until(driver: &mut Driver, mut condition: impl FnMut(&mut Driver) -> bool) {
    let met = eventually(PATIENCE, || {
        driver.drive();
        condition(driver)
    });
    assert!(met, "{driver:?}");
}

fn driver_at(ground: &dyn Ground, stage: Stage) -> Driver {
    let mut driver = Driver::standalone(ground.config()).expect("a poll");
    drive_until(&mut driver, |driver| driver.voters().count() == 3);
    (0..stage.paused()).for_each(|node| ground.pause(2 - node));
    driver.lock("k", stage.acquire()).expect("room");
    match stage {
        Stage::Unwritten => {}
        Stage::Unanswered => driver.drive(),
        Stage::PartlyAnswered => {
            drive_until(&mut driver, |_| ground.keys(0) == 1);
            driver.drive();
        }
        Stage::Won => {
            drive_until(&mut driver, |driver| {
                let has_result = driver.next_deadline().is_some_and(|at| at <= now());
                has_result && (0..3).all(|node| ground.keys(node) == 1)
            });
        }
        Stage::Dropped => {
            let mut lease = None;
            drive_until(&mut driver, |driver| {
                lease = lease.take().or_else(|| won(driver));
                lease.as_ref().is_some_and(|lease| lease.votes().count() == 3)
            });
        }
        Stage::BetweenAttempts | Stage::Waiting => {
            for _ in 0..50 {
                driver.drive();
                std::thread::sleep(ms(1));
            }
            assert_eq!(driver.in_flight(), 1);
        }
    }
    driver
}

fn won(driver: &mut Driver) -> Option<Lease> {
    let done = driver.completion()?;
    let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
    Some(result.expect("the lock is free"))
}

fn drivers_leave_nothing(ground: &impl Ground) {
    leaves_nothing(ground, driver_at, |mut driver, limit| {
        Some(ends_within(limit, || driver.shutdown(limit)))
    });
    leaves_nothing(ground, driver_at, |driver, _| {
        ends_within(ms(0), || drop(driver));
        None
    });
    leaves_nothing(ground, driver_at, |driver, _| {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _driver = driver;
            std::panic::resume_unwind(Box::new("a fault of the program's own"));
        }));
        assert!(ended.is_err());
        None
    });
}

#[test]
fn a_driver_that_ends_leaves_no_key_on_embedded_nodes() {
    drivers_leave_nothing(&Nodes::start(3).unwrap());
}

#[test]
fn a_driver_that_ends_leaves_no_key_on_real_servers() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    drivers_leave_nothing(&cluster);
}

/// A lock that is held when its driver ends stays held until its TTL ends.
#[test]
fn a_lease_that_is_held_when_its_driver_ends_stays_until_its_deadline() {
    let nodes = Nodes::start(3).unwrap();
    for is_shut_down in [false, true] {
        let mut driver = Driver::standalone(nodes.config()).unwrap();
        drive_until(&mut driver, |driver| driver.voters().count() == 3);
        driver.try_lock("k", ms(1_500)).unwrap();
        let mut lease = None;
        drive_until(&mut driver, |driver| {
            lease = lease.take().or_else(|| won(driver));
            lease.is_some()
        });
        let lease = lease.unwrap();
        if is_shut_down {
            assert_eq!(driver.shutdown(PATIENCE), 0, "a lock that is held is no debt");
        }
        drop(driver);
        assert!(lease.is_valid() && nodes.keys(0) + nodes.keys(1) + nodes.keys(2) >= 2);
        let ends = lease.deadline();
        drop(lease);
        let other = client_of(&nodes);
        assert!(eventually(PATIENCE, || other.try_lock("k", TTL).wait().is_ok()));
        assert!(now() >= ends, "nobody was there to release it");
    }
}

#[test]
fn a_driver_that_was_shut_down_takes_no_lock_and_still_releases_one() {
    let nodes = Nodes::start(3).unwrap();
    let mut driver = Driver::standalone(nodes.config()).unwrap();
    drive_until(&mut driver, |driver| driver.voters().count() == 3);
    driver.try_lock("k", TTL).unwrap();
    let mut lease = None;
    drive_until(&mut driver, |driver| {
        lease = lease.take().or_else(|| won(driver));
        lease.is_some()
    });
    driver.shutdown(LIMIT);
    let calls = [
        driver.try_lock("a", TTL),
        driver.lock("a", TTL),
        driver.try_lock_all(&["a", "b"], TTL),
        driver.lock_all(&["a", "b"], TTL),
    ];
    assert!(calls.iter().all(|call| matches!(call, Err(LockError::Closed))), "{calls:?}");
    let adoptions = [driver.adopt("a", "t", TTL), driver.adopt_all(&[("a", "t"), ("b", "t")], TTL)];
    let is_closed = |call: &Result<_, _>| matches!(call, Err(ExtendError::Closed));
    assert!(adoptions.iter().all(is_closed), "{adoptions:?}");
    driver.unlock(lease.expect("it was won")).unwrap();
    drive_until(&mut driver, |driver| {
        let done = driver.completion();
        done.is_some_and(|done| matches!(done.result, Outcome::Unlock(Ok(Unlocked::Released))))
    });
}

#[test]
fn a_node_that_is_away_is_owed_what_it_may_hold() {
    let nodes = Nodes::start(3).unwrap();
    let mut driver = driver_at(&nodes, Stage::Won);
    nodes.kill(1).unwrap();
    assert_eq!(driver.shutdown(LIMIT), 1);
    assert_eq!(nodes.keys(0) + nodes.keys(2), 0);
}

// ---- the client ----

fn client_of(ground: &dyn Ground) -> Client {
    let config = ground.config().node_timeout(LIMIT);
    let client = Client::connect(config).expect("nodes are fit");
    all_vote(&client, 3);
    client
}

type Locking = Pin<Box<dyn Future<Output = Result<Guard, LockError>> + Send>>;

fn peek(future: &mut Locking) -> Option<Result<Guard, LockError>> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn shared_at(ground: &dyn Ground, stage: Stage) -> (Client, Locking) {
    let shared = Client::connect(ground.config().node_timeout(LIMIT)).expect("nodes are fit");
    assert!(eventually(PATIENCE, || shared.voters().count() == 3));
    (0..stage.paused()).for_each(|node| ground.pause(2 - node));
    let handle = shared.clone();
    let begun = || -> Locking {
        let (handle, acquire) = (handle.clone(), stage.acquire());
        Box::pin(async move { handle.lock("k", acquire).await })
    };
    // The I/O thread, which has just connected, may be faster than the first look.
    let mut future = begun();
    while peek(&mut future).is_some() {
        future = begun();
    }
    match stage {
        Stage::Unwritten | Stage::Unanswered => {}
        Stage::PartlyAnswered => assert!(eventually(PATIENCE, || ground.keys(0) == 1)),
        Stage::Won | Stage::Dropped => {
            assert!(eventually(PATIENCE, || (0..3).all(|node| ground.keys(node) == 1)));
            std::thread::sleep(ms(5));
        }
        Stage::BetweenAttempts | Stage::Waiting => std::thread::sleep(ms(50)),
    }
    if stage == Stage::Dropped {
        // The client may read the answers later than the nodes gave them.
        let mut result = None;
        assert!(eventually(PATIENCE, || {
            result = peek(&mut future);
            result.is_some()
        }));
        drop(result.expect("it was won").expect("the lock is free"));
    }
    (shared, future)
}

#[test]
fn a_client_that_ends_leaves_no_key() {
    let nodes = Nodes::start(3).unwrap();
    leaves_nothing(&nodes, shared_at, |(shared, mut future), limit| {
        let owed = ends_within(limit, || shared.shutdown(limit).wait());
        if format!("{shared:?}").contains("calls: 1") {
            let result = peek(&mut future).expect("no call outlives the handle");
            assert!(matches!(result, Err(LockError::Closed | LockError::Cancelled)), "{result:?}");
        }
        Some(owed)
    });
    leaves_nothing(&nodes, shared_at, |(shared, future), _| {
        drop((shared, future));
        None
    });
}
