//! Locks that several callers may hold at once, readers and writers.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;

use redbolt::{Client, LockError, LockOptions, Retry, Unlocked};

use super::client::{embedded, in_use, is_clean, patient};
use super::common::{Clients as _, Cluster, PATIENCE, TTL, eventually, fresh_config, ms};
use super::fences::{client_of, config, fenced};

fn endless() -> LockOptions {
    LockOptions::new(TTL).retry(Retry::every(ms(5), ms(5))).timeout(PATIENCE)
}

#[test]
fn a_lock_with_three_slots_has_three_holders_in_any_clients() {
    let (nodes, client) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    let options = LockOptions::new(TTL).slots(3);
    let mut guards = vec![
        client.try_lock("n", options.clone()).wait().unwrap(),
        other.try_lock("n", options.clone()).wait().unwrap(),
        client.lock("n", options.clone()).wait().unwrap(),
    ];
    let mut slots: Vec<_> = guards.iter().map(|guard| guard.slot().unwrap()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
    for client in [&client, &other] {
        let error = client.try_lock("n", options.clone()).wait().unwrap_err();
        assert!(matches!(error, LockError::Taken(_)), "{error}");
    }
    let mut guard = guards.remove(1);
    guard.extend(TTL).wait().unwrap();
    let slot = guard.slot();
    assert_eq!(guard.unlock().wait().unwrap(), Unlocked::Released);
    let guard = client.try_lock("n", options.clone()).wait().unwrap();
    assert_eq!(guard.slot(), slot);
    // A lock without slots is another lock.
    let plain = client.try_lock("n", TTL).wait().unwrap();
    assert_eq!(plain.slot(), None);
    for key in ["n:slot", "n:slot:0", "n:slot:62"] {
        let error = client.try_lock(key, TTL).wait().unwrap_err();
        assert!(matches!(error, LockError::ReservedKey), "{key}: {error}");
    }
    drop((guards, guard, plain));
    is_clean(&nodes, &client);
}

#[test]
fn a_slot_is_given_away_and_taken_over_by_its_own_key() {
    let (nodes, client) = embedded(|config| config);
    let mut guard = client.try_lock("n", LockOptions::new(TTL).slots(2)).wait().unwrap();
    let (key, slot) = (guard.key().to_vec(), guard.slot());
    let token = guard.detach().wait().unwrap();
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    let guard = other.adopt(&key, token.as_bytes(), TTL).wait().unwrap();
    assert_eq!(guard.slot(), slot);
    drop(guard);
    is_clean(&nodes, &client);
}

#[test]
fn callers_of_one_client_that_wait_get_whichever_slot_is_free_first() {
    let (nodes, client) = embedded(|config| config);
    let options = || patient(TTL).slots(2);
    for first in 0..2 {
        let take = || client.lock("n", options()).wait().unwrap();
        let mut guards = vec![take(), take()];
        thread::scope(|scope| {
            let waits: Vec<_> = (0..2).map(|_| scope.spawn(|| take().slot().unwrap())).collect();
            assert!(eventually(PATIENCE, || in_use(&client).0 == 2), "{client:?}");
            // One of the two calls waits for the other slot, and the slot that becomes free here
            // serves both.
            drop(guards.remove(first));
            for call in waits {
                call.join().unwrap();
            }
        });
    }
    is_clean(&nodes, &client);
}

#[test]
fn a_slot_whose_holder_is_over_or_was_adopted_is_found_by_a_call_that_waits_for_another() {
    let (nodes, client) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    let options = || patient(TTL).slots(2);
    let first = client.lock("n", options()).wait().unwrap();
    // A holder that hangs: its guard never comes back.
    std::mem::forget(client.lock("n", patient(ms(1_000)).slots(2)).wait().unwrap());
    drop(client.lock("n", options()).wait().expect("the slot is free after a second"));
    let mut given = other.lock("n", options()).wait().unwrap();
    let key = given.key().to_vec();
    // A node that grants later than the client gives the lock away keeps the key for its TTL.
    let is_quiet = || other.nodes().wait().iter().all(|node| node.unanswered == 0);
    assert!(eventually(PATIENCE, is_quiet), "{:?}", other.nodes().wait());
    let token = given.detach().wait().unwrap();
    let adopted = client.adopt(&key, token.as_bytes(), TTL).wait().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.lock("n", options()).wait());
        assert!(eventually(PATIENCE, || in_use(&client).0 == 1), "{client:?}");
        drop(adopted);
        drop(waits.join().unwrap().expect("the slot that was adopted"));
    });
    drop(first);
    is_clean(&nodes, &client);
}

#[test]
fn a_call_gets_no_slot_beyond_its_own_number() {
    let (nodes, client) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    let take = |client: &Client, slots| client.lock("n", patient(TTL).slots(slots)).wait().unwrap();
    let mut low = vec![take(&other, 2), take(&other, 2)];
    let high = [take(&client, 5), take(&client, 5)];
    assert!(high.iter().all(|guard| guard.slot() > Some(1)));
    thread::scope(|scope| {
        let waits = scope.spawn(|| take(&client, 2).slot());
        assert!(eventually(PATIENCE, || in_use(&client).0 == 1), "{client:?}");
        drop(high);
        drop(low.pop());
        assert!(waits.join().unwrap() < Some(2));
    });
    drop(low);
    is_clean(&nodes, &client);
}

#[test]
fn no_leader_holds_a_slot() {
    let (_nodes, client) = embedded(|config| config);
    let error = client.campaign("n", LockOptions::new(TTL).slots(2)).wait().unwrap_err();
    assert!(error.to_string().contains("an election takes one key without slots"), "{error}");
}

#[test]
fn a_call_for_a_slot_that_is_dropped_or_over_leaves_nothing_behind() {
    let (nodes, client) = embedded(|config| config);
    let other = Client::connect(fresh_config(nodes.urls())).unwrap();
    let all = other.lock("n", LockOptions::new(TTL).write(4)).wait().unwrap();
    assert_eq!((all.keys().count(), all.slot()), (5, None));
    let options = patient(TTL).slots(4);
    // The time has room for nodes that answer late.
    let error = client.lock("n", options.clone().timeout(ms(1_000))).wait().unwrap_err();
    assert!(error.is_taken(), "{error}");
    for options in [options, patient(TTL).write(4)] {
        let mut call = Box::pin(client.lock("n", options));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        drop(call);
    }
    drop(all);
    is_clean(&nodes, &client);
}

#[test]
fn at_most_as_many_threads_of_many_clients_work_as_the_lock_has_slots() {
    const TURNS: u64 = 60;
    const SLOTS: i64 = 3;
    let Some(cluster) = Cluster::mixed(5) else { return };
    let clients = [cluster.client(), cluster.client(), cluster.client(), cluster.client()];
    let (at_work, most, turns) = (AtomicI64::new(0), AtomicI64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for nth in 0..8 {
            let (client, at_work, most, turns) = (&clients[nth % 4], &at_work, &most, &turns);
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let guard = client.lock("jobs", endless().slots(3)).wait();
                    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
                    let now = at_work.fetch_add(1, Ordering::AcqRel) + 1;
                    assert!(now <= SLOTS, "{now} at work");
                    most.fetch_max(now, Ordering::Relaxed);
                    thread::yield_now();
                    at_work.fetch_sub(1, Ordering::AcqRel);
                    turns.fetch_add(1, Ordering::Relaxed);
                    if turn.is_multiple_of(3) {
                        drop(guard);
                    } else {
                        guard.unlock().wait().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), TURNS * 8);
    assert_eq!(most.into_inner(), SLOTS, "all slots are used");
}

#[test]
fn a_writer_works_alone_and_readers_work_together() {
    const TURNS: u64 = 40;
    let Some(cluster) = Cluster::mixed(5) else { return };
    let clients = [cluster.client(), cluster.client(), cluster.client()];
    // The readers at work, or less than zero: a writer.
    let at_work = AtomicI64::new(0);
    thread::scope(|scope| {
        for nth in 0..6 {
            let (client, at_work) = (&clients[nth % 3], &at_work);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let writes = nth < 2;
                    let options = if writes { endless().write(4) } else { endless().read(4) };
                    let guard = client.lock("table", options).wait();
                    let guard = guard.unwrap_or_else(|error| panic!("{writes}: {error}"));
                    let step = if writes { -1_000 } else { 1 };
                    let before = at_work.fetch_add(step, Ordering::AcqRel);
                    let is_alone = before == 0;
                    assert!(is_alone || !writes && before > 0, "{before} at work, and {step}");
                    thread::yield_now();
                    at_work.fetch_sub(step, Ordering::AcqRel);
                    drop(guard);
                }
            });
        }
    });
}

#[test]
fn each_slot_has_fences_of_its_own() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = client_of(config(&cluster));
    let mut last = None;
    for _ in 0..4 {
        let guard = client.lock("n", fenced().slots(1)).wait().unwrap();
        assert!(guard.fence() > last, "{:?} after {last:?}", guard.fence());
        last = guard.fence();
        guard.unlock().wait().unwrap();
    }
}
