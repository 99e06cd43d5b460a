//! A lease that is kept outlives its nodes: each of them forgets it, again and again, and gets its
//! token back before the next one forgets.

use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::{Client, LockError, LockOptions};

use redbolt_rig::{Cluster, eventually, ms};

use super::{Duration, MAX_TTL, TTL, chosen_seed, config, lasts, lock_key};

/// How a node comes to forget a lease.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// It restarts without memory.
    Restart,
    /// It stands still for longer than the TTL.
    Freeze,
    /// It is a replica for a while, and loses its keys to a master without any.
    Demote,
}

#[test]
fn a_lease_that_is_kept_outlives_the_memory_of_all_its_nodes() {
    let Some(mut cluster) = Cluster::mixed(5) else { return };
    let client = Client::open(config(&cluster.urls(), 3)).expect("a client");
    let rival = Client::open(config(&cluster.urls(), 3)).expect("a client");
    let key = lock_key(0);
    let kept = || LockOptions::new(TTL).keep_alive();
    let guard = client.lock(&key, kept()).wait().expect("the servers are old enough in a moment");
    let is_whole = || usize::try_from(guard.votes().count()) == Ok(5);
    assert!(eventually(Duration::from_secs(20), is_whole), "{guard:?}");
    let mut random = StdRng::seed_from_u64(chosen_seed());
    let goes_on = lasts(9);
    let mut times = [0; 5];
    for (round, way) in [Way::Restart, Way::Freeze, Way::Demote].into_iter().cycle().enumerate() {
        if !goes_on(round) {
            break;
        }
        let index = random.random_range(0..cluster.len());
        match way {
            Way::Restart => {
                cluster.node_mut(index).kill9();
                cluster.node_mut(index).restart();
            }
            Way::Freeze => {
                cluster.node(index).freeze();
                // The client counts the silence from its next extension, a third of the TTL later.
                thread::sleep(TTL * 2);
                cluster.node(index).thaw();
            }
            Way::Demote => {
                let server = cluster.node(index);
                assert!(server.command(&["REPLICAOF", "127.0.0.1", "1"]).starts_with(b"+OK"));
                // Each extension comes a third of the TTL after the last.
                thread::sleep(TTL / 2);
                assert!(server.command(&["REPLICAOF", "NO", "ONE"]).starts_with(b"+OK"));
                assert_eq!(server.command(&["FLUSHALL"]), b"+OK\r\n");
            }
        }
        // At most one node has forgotten the lease at any time.
        let is_healed = eventually(MAX_TTL * 10, || is_whole() && cluster.holders(&key) == 5);
        assert!(is_healed, "{way:?} of node {index}: {guard:?}, {:?}", client.nodes().wait());
        assert!(guard.is_valid() && !guard.is_lost());
        let denied = rival.try_lock(&key, TTL).wait();
        assert!(matches!(denied, Err(LockError::Taken(_))), "{denied:?}");
        times[index] += 1;
    }
    println!("how often each node forgot the lease: {times:?}");
    guard.unlock().wait().expect("it was held all the time");
    // A quorum decides; the other nodes may answer later.
    assert_eq!(client.shutdown(Duration::from_secs(20)).wait(), 0);
    assert_eq!(cluster.holders(&key), 0);
    drop(rival.try_lock(&key, TTL).wait().expect("it is free"));
}
