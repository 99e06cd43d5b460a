//! Once warm, a lock costs no heap allocation. A binary of its own, for its allocator counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, Config, LockError, LockOptions, Retry, Shared};
use redbolt_benches::rig::Rig;
use redbolt_embedded::Nodes;

const TTL: Duration = Duration::from_secs(10);
/// Of a lock that thousands of cycles run into.
const HELD: Duration = Duration::from_secs(600);

/// With time for a node that the machine keeps from running.
fn config(nodes: &Nodes) -> Config {
    let config = Config::new(nodes.urls()).expect("addresses of nodes");
    config.node_timeout(Duration::from_secs(5)).max_ttl(HELD)
}

/// Runs `cycle` until it is warm, and counts what 100 more of it allocate.
///
/// The least of up to 50 counts: where the machine keeps one node's thread from running, what waits
/// for its answers grows once, and metrics are handed out once a second. An allocation of each cycle,
/// or of each hundredth, would stand in every count.
fn allocations(mut cycle: impl FnMut(u32)) -> u64 {
    let mut rounds = 0..;
    let mut run = |cycles| rounds.by_ref().take(cycles).for_each(&mut cycle);
    run(1_000);
    // Counts this thread alone, so the nodes' own threads do not.
    let mut least = u64::MAX;
    for _ in 0..50 {
        least = least.min(allocation_counter::measure(|| run(100)).count_total);
        if least == 0 {
            break;
        }
    }
    least
}

/// A key as long as is kept in place, without an allocation of the test's own.
fn key(round: u32) -> [u8; 32] {
    let mut key = *b"warehouse:stock:sku:000000000000";
    let mut rest = round;
    for digit in key.iter_mut().rev().take(10) {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    key
}

#[test]
fn a_warm_lock_allocates_nothing() {
    let nodes = Nodes::start(5).unwrap();
    let mut client = Client::connect(config(&nodes)).unwrap();

    let unlocked = allocations(|round| {
        let lease = client.try_lock(key(round), TTL).unwrap();
        client.unlock(lease).unwrap();
    });
    assert_eq!(unlocked, 0, "acquire and unlock");

    let long = allocations(|round| {
        let lease = client.try_lock([key(round); 4].as_flattened(), TTL).unwrap();
        client.unlock(lease).unwrap();
    });
    assert_eq!(long, 0, "a key that is not kept in place");

    let dropped = allocations(|round| drop(client.try_lock(key(round), TTL).unwrap()));
    assert_eq!(dropped, 0, "acquire and drop");

    let extended = allocations(|round| {
        let mut lease = client.try_lock(key(round), TTL).unwrap();
        client.extend(&mut lease, TTL).unwrap();
        client.unlock(lease).unwrap();
    });
    assert_eq!(extended, 0, "acquire, extend and unlock");

    let held = client.try_lock("held", HELD).unwrap();
    let denied = allocations(|_| {
        assert!(matches!(client.try_lock("held", TTL), Err(LockError::Taken(_))));
    });
    assert_eq!(denied, 0, "conflict");
    client.unlock(held).unwrap();
}

/// Of the caller's thread; the I/O thread is counted by nobody here.
#[cfg(feature = "shared")]
#[test]
fn a_warm_call_of_a_shared_handle_allocates_nothing() {
    let nodes = Nodes::start(5).unwrap();
    let shared = Shared::connect(config(&nodes)).unwrap();
    let unlocked = allocations(|round| {
        let guard = shared.try_lock(key(round), TTL).unwrap();
        shared.unlock(guard).unwrap();
    });
    assert_eq!(unlocked, 0, "acquire and unlock");
    let extended = allocations(|round| {
        let mut guard = shared.lock(key(round), TTL).unwrap();
        shared.extend(&mut guard, TTL).unwrap();
    });
    assert_eq!(extended, 0, "acquire, extend and drop");
    let held = shared.try_lock("held", HELD).unwrap();
    let denied = allocations(|_| {
        assert!(matches!(shared.try_lock("held", TTL), Err(LockError::Taken(_))));
    });
    assert_eq!(denied, 0, "conflict");
    drop(held);
}

#[test]
fn a_warm_batch_allocates_nothing() {
    let nodes = Nodes::start(5).unwrap();
    let mut client = Client::connect(config(&nodes)).unwrap();
    let batched = allocations(|round| {
        let mut batch = client.batch();
        for index in 0..8 {
            batch.try_lock(key(round * 8 + index), TTL).unwrap();
        }
        while let Some(done) = batch.wait_completion().unwrap() {
            if let Outcome::Lock(lease) = done.result {
                batch.unlock(lease.unwrap()).unwrap();
            }
        }
    });
    assert_eq!(batched, 0);
}

#[test]
fn a_retry_allocates_nothing() {
    let nodes = Nodes::start(3).unwrap();
    let pause = Duration::from_micros(10);
    let retry = Retry::every(pause, pause).attempts(2);
    let mut client = Client::connect(config(&nodes).retry(retry)).unwrap();
    let held = client.try_lock("held", HELD).unwrap();
    let retried = allocations(|_| {
        assert!(matches!(client.lock("held", TTL), Err(LockError::Taken(_))));
    });
    assert_eq!(retried, 0);
    client.unlock(held).unwrap();
}

/// Three clients want one key all the time and hold it long enough to hear of each other, so that each
/// release wakes the first of a list.
#[test]
fn a_lock_that_goes_from_client_to_client_allocates_nothing() {
    let nodes = Nodes::start(3).unwrap();
    let is_over = AtomicBool::new(false);
    let connect = || Client::connect(config(&nodes)).unwrap();
    let take = |client: &mut Client| {
        let lease = client.lock("wanted", TTL).unwrap();
        // Work under the lock.
        thread::sleep(Duration::from_micros(200));
        client.unlock(lease).unwrap();
    };
    let handed_over = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = connect();
                while !is_over.load(Ordering::Relaxed) {
                    take(&mut client);
                }
            });
        }
        let count = allocations({
            let mut client = connect();
            move |_| take(&mut client)
        });
        is_over.store(true, Ordering::Relaxed);
        count
    });
    assert_eq!(handed_over, 0);
}

/// The sockets take nothing for a while, then part of what waits, then all; each answer comes in two
/// parts.
#[test]
fn output_that_piles_up_and_drains_in_parts_allocates_nothing() {
    let mut rig = Rig::new(5, 16).unwrap();
    assert_eq!(allocations(|_| rig.cycle().unwrap()), 0, "taken at once");
    let piled = allocations(|round| {
        let takes = |len: usize| match round % 48 {
            0..16 => 0,
            16..32 => len.min(300),
            32..47 => len / 3,
            _ => len,
        };
        rig.cycle_in_parts(takes, [&[b"+O", b"K\r\n"], &[b":1\r", b"\n"]]).unwrap();
    });
    assert_eq!(piled, 0, "taken in parts");
}

#[test]
fn a_lock_that_lingers_is_taken_again_without_an_allocation() {
    let nodes = Nodes::start(3).unwrap();
    let options = LockOptions::new(TTL).linger(TTL);
    let mut driver = Driver::standalone(config(&nodes)).unwrap();
    while !driver.is_settled() {
        driver.drive();
    }
    let lock = |driver: &mut Driver| loop {
        match driver.completion().map(|done| done.result) {
            Some(Outcome::Lock(result)) => break result.unwrap(),
            Some(_) => {}
            None => driver.drive(),
        }
    };
    // The first of 64 turns needs the nodes.
    let in_driver = allocations(|_| {
        driver.try_lock("k", options.clone()).unwrap();
        let lease = lock(&mut driver);
        driver.unlock(lease).unwrap();
    });
    assert_eq!(in_driver, 0, "in a driver");

    let shared = Shared::connect(config(&nodes)).unwrap();
    let through_shared = allocations(|_| drop(shared.try_lock("s", options.clone()).unwrap()));
    assert_eq!(through_shared, 0, "through a shared handle");
}
