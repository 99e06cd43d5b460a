//! Several keys under one guard, beside single keys of the same and of other clients.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, ExtendError, Guard, LockError, LockOptions, Retry, Unlocked};
use redbolt_embedded::Nodes;

use super::client::{embedded, is_clean, patient};
use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, TTL, eventually, fresh_config, ms, wait_released,
};
use super::fences::{client_of, config, fenced};

#[test]
fn a_guard_of_several_keys_is_used_as_one_of_a_single_key() {
    let (nodes, client) = embedded(|config| config);
    let mut guard = client.try_lock_all(["b", "c", "a"], TTL).wait().unwrap();
    assert!(guard.keys().eq([b"a", b"b", b"c"]));
    assert!(guard.is_valid() && guard.remaining() > TTL / 2);
    for key in ["a", "b", "c"] {
        assert!(matches!(client.try_lock(key, TTL).wait(), Err(LockError::Taken(_))), "{key}");
    }
    guard.extend(TTL).wait().unwrap();
    guard.extend_if_due().wait().unwrap();
    let tokens: Vec<_> = ["a", "b", "c"].map(|key| guard.token_of(key).unwrap()).into();
    assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2]);
    assert_eq!(guard.token(), guard.token_of("a"));
    assert_eq!(guard.token_of("d"), None);
    assert_eq!(guard.unlock().wait().unwrap(), Unlocked::Released);
    is_clean(&nodes, &client);
    drop(client.try_lock_all(["a", "b"], TTL).wait().unwrap());
    is_clean(&nodes, &client);
    // One key is a plain lock.
    let guard = client.lock_all(["a"], TTL).wait().unwrap();
    assert!(guard.keys().eq([b"a"]));
    drop(guard);
    is_clean(&nodes, &client);
}

#[test]
fn another_client_adopts_the_keys_of_a_detached_guard_as_one_or_leaves_them() {
    let (nodes, client) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    // A SET on its way would come behind the commands of the other client.
    let is_everywhere = |guard: &Guard| eventually(PATIENCE, || guard.votes().count() == 3);
    let mut guard = client.try_lock_all(["a", "b"], TTL).wait().unwrap();
    assert!(is_everywhere(&guard));
    let given = ["b", "a"].map(|key| (key, guard.token_of(key).unwrap()));
    let first = guard.detach().wait().unwrap();
    drop(guard);
    let adopted = other.adopt_all(given.clone(), TTL).wait().unwrap();
    assert!(adopted.keys().eq([b"a", b"b"]));
    assert_eq!(adopted.token(), Some(first));
    assert_eq!(adopted.unlock().wait().unwrap(), Unlocked::Released);
    // A client that still deletes a lock does not adopt it.
    let is_deleted = || other.nodes().wait().iter().all(|node| node.unanswered == 0);
    assert!(eventually(PATIENCE, is_deleted));
    // One of the keys is over.
    let mut guard = client.try_lock("a", TTL).wait().unwrap();
    assert!(is_everywhere(&guard));
    let only = guard.detach().wait().unwrap();
    let [(gone, token), _] = &given;
    let error = other.adopt_all([("a", &only), (gone, token)], TTL).wait().unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    // A node beyond the quorum may still have to delete the key that was released before.
    assert!(eventually(PATIENCE, || keys(&nodes) == 1));
    assert!((0..3).all(|node| nodes.key_count(node).expect("it runs") == 1), "the other key stays");
    assert_eq!(other.unlock_token("a", only).wait().unwrap(), Unlocked::Released);
    is_clean(&nodes, &client);
}

#[test]
fn several_keys_and_single_keys_of_other_clients_exclude_each_other() {
    let (nodes, client) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    let single = other.lock("b", TTL).wait().unwrap();
    let error = client.try_lock_all(["a", "b", "c"], TTL).wait().unwrap_err();
    // A node that denies several keys at once does not say which is held. A call that waits asks again.
    let LockError::Taken(ballot) = error else { panic!("not taken: {error}") };
    assert_eq!(ballot.key(), None);
    // The time has room for nodes that answer late.
    let waits = patient(TTL).timeout(ms(1_000));
    let error = client.lock_all(["a", "b", "c"], waits).wait().unwrap_err();
    assert!(error.is_taken() && error.to_string().contains("b: 0 of 3 granted"), "{error}");
    assert!(eventually(PATIENCE, || keys(&nodes) == 1), "the other keys are given back");
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.lock_all(["a", "b", "c"], patient(TTL)).wait());
        // The call keeps `a`, and waits for `b`.
        let is_kept = || matches!(other.try_lock("a", TTL).wait(), Err(LockError::Taken(_)));
        assert!(eventually(PATIENCE, is_kept));
        // An attempt that asked for all keys at once may give this one back a moment later.
        let is_free = || other.try_lock("c", TTL).wait().is_ok();
        assert!(eventually(PATIENCE, is_free), "it is behind the key that is waited for");
        single.unlock().wait().unwrap();
        let guard = waits.join().unwrap().expect("all keys are free");
        assert!(guard.remaining() > TTL / 2);
    });
    is_clean(&nodes, &client);
}

fn keys(nodes: &Nodes) -> usize {
    (0..3).map(|node| nodes.key_count(node).expect("it runs")).max().unwrap_or(0)
}

#[test]
fn a_call_that_is_dropped_or_refused_leaves_no_key_behind() {
    let (nodes, client) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    let single = other.lock("b", TTL).wait().unwrap();
    // The time has room for nodes that answer late.
    let options = patient(TTL).timeout(ms(1_000));
    assert!(client.lock_all(["a", "b"], options).wait().unwrap_err().is_taken());
    let mut call = Box::pin(client.lock_all(["a", "b"], patient(TTL)));
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(call.as_mut().poll(&mut context).is_pending());
    assert!(eventually(PATIENCE, || keys(&nodes) == 2), "it keeps `a`");
    drop(call);
    drop(single);
    is_clean(&nodes, &client);
    for (keys, part) in [
        (vec![], "1 to 64 keys"),
        (vec!["a", "a"], "a key appears twice"),
        (vec!["a", ""], "the key has 0 bytes"),
        (vec!["a", "b:elected"], "belongs to another lock"),
    ] {
        let error = client.lock_all(&keys, TTL).wait().unwrap_err();
        assert!(error.to_string().contains(part), "{keys:?}: {error}");
    }
    let error = client.lock_all([vec![b'a'; 70_000], vec![b'b']], TTL).wait().unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { len: 70_000 }), "{error}");
    let options = LockOptions::new(TTL).linger(ms(10));
    let error = client.lock_all(["a", "b"], options).wait().unwrap_err();
    assert!(matches!(error, LockError::NoLinger { .. }), "{error}");
    // The name that the client gives to a set is no key.
    let name = b"\x01\0\0\0a\x01\0\0\0b:elected";
    assert!(matches!(client.try_lock(name, TTL).wait(), Err(LockError::ReservedKey)));
    is_clean(&nodes, &client);
}

#[test]
fn threads_with_overlapping_sets_and_single_keys_all_have_their_turns() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    all_have_their_turns(&cluster);
    assert_eq!(cluster.calls("msetex"), 0, "one node lacks it");
}

#[test]
fn threads_with_overlapping_sets_all_have_their_turns_where_one_command_takes_all_keys() {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Valkey91, Kind::Redis86, Kind::Valkey91];
    let Some(cluster) = Cluster::start(&kinds, &[]) else { return };
    all_have_their_turns(&cluster);
    let asked: Vec<u64> = cluster.nodes().map(|node| node.calls("msetex")).collect();
    assert!(asked.iter().all(|count| *count >= TURNS), "{asked:?}");
}

/// How many turns each thread has.
const TURNS: u64 = 40;

/// Each thread takes its keys in an order of its own. Were a call to hold keys behind the one that
/// it waits for, two of them would wait for each other for ever.
fn all_have_their_turns(cluster: &Cluster) {
    let clients = [cluster.client(), cluster.client()];
    let held: [AtomicBool; 4] = std::array::from_fn(|_| AtomicBool::new(false));
    let turns = AtomicU64::new(0);
    let sets: [&[usize]; 8] =
        [&[0, 1], &[1, 0], &[2, 1, 0], &[3, 0], &[1, 2, 3], &[3, 2, 1, 0], &[1], &[0]];
    thread::scope(|scope| {
        for (nth, set) in sets.into_iter().enumerate() {
            let (client, held, turns) = (&clients[nth % 2], &held, &turns);
            scope.spawn(move || {
                let names: Vec<String> = set.iter().map(|key| format!("k{key}")).collect();
                for _ in 0..TURNS {
                    let options = LockOptions::new(TTL).retry(Retry::every(ms(5), ms(5)));
                    let guard = client.lock_all(&names, options.timeout(PATIENCE)).wait();
                    let guard = guard.unwrap_or_else(|error| panic!("{names:?}: {error}"));
                    for key in set {
                        assert!(!held[*key].swap(true, Ordering::AcqRel), "two hold {key}");
                    }
                    turns.fetch_add(1, Ordering::Relaxed);
                    for key in set {
                        held[*key].store(false, Ordering::Release);
                    }
                    if turns.load(Ordering::Relaxed).is_multiple_of(3) {
                        drop(guard);
                    } else {
                        guard.unlock().wait().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), TURNS * 8);
}

#[test]
fn each_key_of_a_fenced_set_has_a_fence_above_that_of_its_last_holder() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = client_of(config(&cluster));
    let single = client.try_lock("b", fenced()).wait().unwrap();
    let last = single.fence().unwrap();
    single.unlock().wait().unwrap();
    let guard = client.lock_all(["a", "b"], fenced()).wait().unwrap();
    assert!(guard.fence_of("b").unwrap() > last);
    assert_eq!(guard.fence(), guard.fence_of("a"));
    assert_eq!(guard.fence_of("c"), None);
}

#[test]
fn a_driver_locks_several_keys_with_one_operation() {
    let nodes = Nodes::start(3).unwrap();
    let mut driver = Driver::standalone(fresh_config(nodes.urls())).unwrap();
    let next = |driver: &mut Driver| {
        let mut result = None;
        let is_done = eventually(PATIENCE, || {
            driver.drive();
            result = driver.completion();
            result.is_some()
        });
        assert!(is_done, "no completion");
        result.unwrap()
    };
    assert!(eventually(PATIENCE, || {
        driver.drive();
        driver.is_ready()
    }));
    let op = driver.try_lock_all(&["x", "y"], TTL).unwrap();
    let done = next(&mut driver);
    assert_eq!(done.id, op);
    let Outcome::Lock(Ok(lease)) = done.result else { panic!("{done:?}") };
    assert!(lease.keys().eq([b"x", b"y"]));
    let op = driver.extend(&lease, TTL).unwrap();
    let done = next(&mut driver);
    assert!(done.id == op && matches!(done.result, Outcome::Extend(Ok(()))), "{done:?}");
    let op = driver.unlock(lease).unwrap();
    let done = next(&mut driver);
    let is_released = matches!(done.result, Outcome::Unlock(Ok(Unlocked::Released)));
    assert!(done.id == op && is_released, "{done:?}");
    assert_eq!(driver.in_flight(), 0);
    assert!(eventually(PATIENCE, || keys(&nodes) == 0));
}

/// All requests of a call fit into what a client keeps for a node.
#[test]
fn the_most_keys_of_the_greatest_length_are_taken_and_released() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let (client, other) = (cluster.client(), cluster.client());
    let key = |nth: u8| [&[nth][..], &[b'k'; 4095]].concat();
    let keys: Vec<_> = (0..64).map(key).collect();
    for guard in [client.lock_all(&keys, TTL), client.try_lock_all(&keys, TTL)] {
        let guard = guard.wait().unwrap();
        assert_eq!(guard.keys().count(), 64);
        assert_eq!(guard.unlock().wait().unwrap(), Unlocked::Released);
    }
    let name = [b'n'; 4080];
    let reader = other.lock(name, LockOptions::new(TTL).read(63)).wait().unwrap();
    let mut write = client.lock(name, LockOptions::new(TTL).write(63));
    assert!(write.wait_for(ms(100)).is_none());
    drop(reader);
    assert_eq!(write.wait().unwrap().keys().count(), 64);
    wait_released(&client, PATIENCE);
}

#[test]
fn times_without_end_are_none() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (client, other, max) = (cluster.client(), cluster.client(), Duration::MAX);
    let held = other.try_lock("k", TTL).wait().unwrap();
    let endless = LockOptions::new(TTL).retry(Retry::every(max, max).timeout(max)).timeout(max);
    let mut calls =
        [true, false].map(|is_woken| client.lock("k", endless.clone().direct_wake(is_woken)));
    assert!(calls.iter_mut().all(|call| call.wait_for(ms(100)).is_none()));
    drop(held);
    drop(calls[0].wait_for(max).unwrap().unwrap());
    drop(calls);
    let late = client.try_lock("k", LockOptions::new(TTL).min_validity(max)).wait();
    assert!(matches!(late, Err(LockError::Expired(_))), "{late:?}");
    let mut guard = client.lock("k", LockOptions::new(TTL).linger(max)).wait().unwrap();
    assert!(matches!(guard.extend(max).wait(), Err(ExtendError::InvalidTtl { .. })));
    assert!(guard.lost().wait_for(ms(10)).is_none());
    drop(guard);
    client.ready(max).wait().unwrap();
    assert_eq!(client.shutdown(max).wait(), 0);
}
