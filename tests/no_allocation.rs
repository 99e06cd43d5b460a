//! Once warm, a lock costs no heap allocation. The test has a binary of its own, because its
//! allocator counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, LockError, LockOptions, Retry};
use redbolt_benches::rig::Rig;
use redbolt_embedded::Nodes;

const TTL: Duration = Duration::from_secs(10);
/// The TTL of a lock that thousands of cycles find taken.
const HELD: Duration = Duration::from_secs(600);

/// A configuration with time for a node that the machine keeps from running.
fn config(nodes: &Nodes) -> Config {
    let config = Config::new(nodes.urls()).expect("addresses of nodes");
    config.node_timeout(Duration::from_secs(5)).max_ttl(HELD)
}

/// Runs `cycle` until it is warm, and counts the allocations of 100 more.
///
/// Returns the least of up to 50 counts. Where the machine keeps one node's thread from running,
/// the queue for its answers grows once. The client hands out metrics once per second. An
/// allocation of each cycle, or of each hundredth, would be in every count.
fn allocations(mut cycle: impl FnMut(u32)) -> u64 {
    let mut rounds = 0..;
    let mut run = |cycles| rounds.by_ref().take(cycles).for_each(&mut cycle);
    run(1_000);
    // Counts this thread alone, so the nodes' own threads do not count.
    let mut least = u64::MAX;
    for _ in 0..50 {
        least = least.min(allocation_counter::measure(|| run(100)).count_total);
        if least == 0 {
            break;
        }
    }
    least
}

/// A key of the greatest length that the client keeps in place. The test itself allocates nothing
/// for it.
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
    let client = Client::connect(config(&nodes)).unwrap();

    let unlocked = allocations(|round| {
        let lease = client.try_lock(key(round), TTL).wait().unwrap();
        lease.unlock().wait().unwrap();
    });
    assert_eq!(unlocked, 0, "acquire and unlock");

    let long = allocations(|round| {
        let lease = client.try_lock([key(round); 4].as_flattened(), TTL).wait().unwrap();
        lease.unlock().wait().unwrap();
    });
    assert!(long <= 3 * 100, "a key that is not kept in place is copied three times: {long}");

    let dropped = allocations(|round| drop(client.try_lock(key(round), TTL).wait().unwrap()));
    assert_eq!(dropped, 0, "acquire and drop");

    let extended = allocations(|round| {
        let mut lease = client.try_lock(key(round), TTL).wait().unwrap();
        lease.extend(TTL).wait().unwrap();
        lease.unlock().wait().unwrap();
    });
    assert_eq!(extended, 0, "acquire, extend and unlock");

    let other = Client::connect(config(&nodes)).unwrap();
    let held = other.try_lock("held", HELD).wait().unwrap();
    let denied = allocations(|_| {
        assert!(matches!(client.try_lock("held", TTL).wait(), Err(LockError::Taken(_))));
    });
    assert_eq!(denied, 0, "conflict");
    held.unlock().wait().unwrap();
}

#[test]
fn a_retry_allocates_nothing() {
    let nodes = Nodes::start(3).unwrap();
    let pause = Duration::from_micros(10);
    let retry = Retry::every(pause, pause).timeout(Duration::from_millis(5));
    let client = Client::connect(config(&nodes).retry(retry).direct_wake(false)).unwrap();
    let other = Client::connect(config(&nodes)).unwrap();
    let held = other.try_lock("held", HELD).wait().unwrap();
    let retried = allocations(|_| {
        let ended = client.lock("held", TTL).wait();
        // The last attempt may be under way when the call ends.
        assert!(matches!(ended, Err(LockError::Taken(_) | LockError::NoQuorum(_))), "{ended:?}");
    });
    assert_eq!(retried, 0);
    held.unlock().wait().unwrap();
}

/// Three clients want one key all the time. They hold it long enough to hear of each other, so each
/// release wakes the first of a list.
#[test]
fn a_lock_that_goes_from_client_to_client_allocates_nothing() {
    let nodes = Nodes::start(3).unwrap();
    let is_over = AtomicBool::new(false);
    let connect = || Client::connect(config(&nodes)).unwrap();
    let take = |client: &Client| {
        let lease = client.lock("wanted", TTL).wait().unwrap();
        // Work under the lock.
        thread::sleep(Duration::from_micros(200));
        lease.unlock().wait().unwrap();
    };
    let handed_over = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = connect();
                while !is_over.load(Ordering::Relaxed) {
                    take(&client);
                }
            });
        }
        let count = allocations({
            let client = connect();
            move |_| take(&client)
        });
        is_over.store(true, Ordering::Relaxed);
        count
    });
    assert_eq!(handed_over, 0);
}

/// The sockets take no bytes for a while, then part of the waiting bytes, then all; each answer
/// comes in two parts.
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
    let shared = Client::connect(config(&nodes)).unwrap();
    let through_client =
        allocations(|_| drop(shared.try_lock("s", options.clone()).wait().unwrap()));
    assert_eq!(through_client, 0, "through a client");
}
