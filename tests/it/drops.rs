//! Drops: every dropped value is released, by its client or its driver, and leaves no key.

use std::thread;
use std::time::Duration;

use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, Guard, LockError, LockOptions, Retry, Unlocked};
use redbolt_rig::uninterrupted;

use super::common::{
    Clients as _, Cluster, PATIENCE, RealServer, TTL, ends_within, eventually, given_away, ms,
    no_quorum, taken, wait_released,
};

#[test]
fn a_dropped_lease_is_released_by_the_drop_of_its_client() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for _ in 0..20 {
        let client = cluster.client();
        let leases: Vec<_> = (0..10)
            .map(|index| client.try_lock(format!("k{index}"), TTL).wait().unwrap())
            .collect();
        drop(leases);
        drop(client);
        // No drop waits. The I/O thread may write the releases, and well before the TTL ends a key.
        let is_empty = || cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n");
        assert!(eventually(PATIENCE, is_empty));
    }
}

/// The connections end with the releases unread.
#[test]
fn a_release_that_was_lost_with_its_connection_is_sent_again_after_the_drop_of_its_client() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for round in 0..10 {
        let client = cluster.client();
        let guard = client.try_lock(format!("k{round}"), TTL).wait().unwrap();
        assert!(eventually(PATIENCE, || guard.votes().count() == 3 || guard.remaining().is_zero()));
        cluster.nodes().for_each(RealServer::hang_up);
        drop(guard);
        drop(client);
        let is_empty = || cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n");
        assert!(eventually(PATIENCE, is_empty), "round {round}");
    }
}

/// A lease outlives its client: its TTL ends it, and the guard stays sound.
#[test]
fn a_lease_that_outlives_its_client_ends_with_its_ttl() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let ttl = ms(2_000);
    let lease = client.try_lock("k", ttl).wait().unwrap();
    let (key, token) = (lease.key().to_vec(), lease.token().unwrap());
    drop(client);
    assert!(lease.is_valid() && cluster.holders("k") >= 2);
    assert_eq!((lease.key(), lease.token().unwrap()), (&key[..], token));
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
    assert_eq!(lease.remaining(), Duration::ZERO, "the keys outlive the lease");
    drop(lease);
}

#[test]
fn a_lease_can_be_read_and_dropped_on_any_thread() {
    const fn is_send_and_sync<T: Send + Sync>() {}
    const fn is_send<T: Send>() {}
    const { is_send_and_sync::<Guard>() };
    const { is_send::<Client>() };
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    for round in 0..50 {
        let keys: Vec<_> = (0..8).map(|index| format!("{round}:{index}")).collect();
        let leases: Vec<_> =
            keys.iter().map(|key| client.try_lock(key, TTL).wait().unwrap()).collect();
        thread::scope(|scope| {
            for (lease, key) in leases.into_iter().zip(&keys) {
                scope.spawn(move || {
                    assert!(lease.is_valid() && lease.key() == key.as_bytes());
                    assert!(lease.votes().count() >= 2);
                });
            }
            // The client goes on meanwhile, and may meet half-dropped leases.
            for index in 0..8 {
                drop(client.try_lock(format!("{round}:own:{index}"), TTL).wait().unwrap());
            }
        });
    }
    wait_released(&client, PATIENCE);
    assert!(cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n"));
}

#[test]
fn a_client_moves_between_threads_with_its_leases() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    for _ in 0..5 {
        let mut lease = client.try_lock("k", TTL).wait().unwrap();
        let worker = thread::spawn(move || {
            lease.extend(TTL).wait().unwrap();
            assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
            client
        });
        client = worker.join().unwrap();
    }
}

#[test]
fn a_detached_lease_is_released_by_nobody() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    let mut extended = client.try_lock("extended", TTL / 2).wait().unwrap();
    extended.extend(TTL).wait().unwrap();
    let (key, token) = given_away(lease);
    let (_, extended) = given_away(extended);
    for index in 0..20 {
        drop(client.try_lock(format!("other{index}"), TTL).wait().unwrap());
    }
    wait_released(&client, PATIENCE);
    drop(client);
    assert_eq!(cluster.holders("k"), 5);
    assert_eq!(cluster.values("k"), vec![Some(token.as_bytes().to_vec()); 5]);
    let client = cluster.client();
    assert_eq!(client.unlock_token(&key, &token).wait().unwrap(), Unlocked::Released);
    assert_eq!(client.unlock_token("extended", &extended).wait().unwrap(), Unlocked::Released);
}

#[test]
fn a_client_dropped_right_after_a_failed_attempt_leaves_no_key() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for node in 0..3 {
        cluster.occupy(node, "k");
    }
    for round in 0..30 {
        let client = cluster.client();
        if round % 2 == 0 {
            taken(client.try_lock("k", TTL).wait());
        } else {
            // On a busy machine the call may end before a node has answered.
            let retry = Retry::every(ms(1), Duration::ZERO).timeout(ms(100));
            let ended = client.lock("k", LockOptions::new(TTL).retry(retry)).wait();
            assert!(
                matches!(ended, Err(LockError::Taken(_) | LockError::NoQuorum(_))),
                "{ended:?}"
            );
        }
        // No drop waits for the releases.
        drop(client);
        assert!(eventually(PATIENCE, || cluster.holders("k") == 3), "{:?}", cluster.values("k"));
    }
}

/// A hanging minority must not hold up the thread that drops a client, nor keep a key for long.
#[test]
fn a_client_dropped_while_nodes_hang_ends_in_its_time_and_leaves_no_key_after_the_thaw() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let node_timeout = ms(1_000);
    let hanging = [1, 3];
    for (round, fails) in [false, true].into_iter().enumerate() {
        let key = format!("k{round}");
        let client = Client::connect(cluster.config().node_timeout(node_timeout)).unwrap();
        if fails {
            cluster.node(0).freeze();
        }
        hanging.iter().for_each(|&index| cluster.node(index).freeze());
        if fails {
            no_quorum(client.try_lock(&key, TTL).wait());
        } else {
            drop(client.try_lock(&key, TTL).wait().unwrap());
        }
        ends_within(node_timeout, || drop(client));
        assert!(eventually(PATIENCE, || [2, 4].iter().all(|&it| !cluster.node(it).exists(&key))));
        (0..5).for_each(|index| cluster.node(index).thaw());
        assert!(eventually(PATIENCE, || cluster.holders(&key) == 0), "{:?}", cluster.values(&key));
    }
}

/// Thousands of leases come and go; the client never confuses a lease with one that had its place
/// before.
#[test]
fn leases_come_and_go_in_any_order_without_being_confused() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let mut held: Vec<(String, Guard)> = Vec::new();
    let mut seed = 1_u64;
    for step in 0..3_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pick = usize::try_from(seed >> 33).unwrap();
        let key = format!("key number {}{}", pick % 40, "x".repeat(pick % 60));
        match pick % 4 {
            0 | 1 => match client.try_lock(&key, TTL).wait() {
                Ok(lease) => held.push((key, lease)),
                Err(_) => assert!(held.iter().any(|(other, _)| *other == key), "{key}"),
            },
            2 if !held.is_empty() => drop(held.swap_remove(pick % held.len())),
            _ if !held.is_empty() => {
                let (key, lease) = held.swap_remove(pick % held.len());
                assert_eq!(lease.key(), key.as_bytes());
                assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released, "{step}");
            }
            _ => {}
        }
        assert!(held.iter().all(|(key, lease)| lease.key() == key.as_bytes()));
    }
    wait_released(&client, PATIENCE);
    let count = format!(":{}\r\n", held.len()).into_bytes();
    assert!(eventually(PATIENCE, || {
        cluster.nodes().all(|node| node.command(&["DBSIZE"]) == count)
    }));
    drop(held);
    drop(client);
    assert!(eventually(PATIENCE, || {
        cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n")
    }));
}

/// The releases exceed every buffer: the driver owes those that cannot go out at once, and pays
/// them.
#[test]
fn tens_of_thousands_of_leases_dropped_at_once_are_all_released() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    // No key ends by itself before the driver does.
    let ttl = PATIENCE * 6;
    let mut driver = Driver::standalone(cluster.config().max_ttl(ttl)).unwrap();
    let mut leases = Vec::new();
    for batch in 0..15 {
        let mut open = 0;
        for index in 0..2_000 {
            let key = format!("a key of some length, so that it adds up: {batch}:{index}");
            driver.try_lock(key, ttl).unwrap();
            open += 1;
        }
        assert!(eventually(PATIENCE, || {
            driver.drive();
            while let Some(done) = driver.completion() {
                let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
                leases.push(result.unwrap());
                open -= 1;
            }
            open == 0
        }));
    }
    assert_eq!(leases.len(), 30_000);
    drop(leases);
    // A lock that is asked for meanwhile gets its turn.
    let retry = Retry::every(ms(5), ms(5)).timeout(PATIENCE);
    driver.lock("meanwhile", LockOptions::new(TTL).retry(retry)).unwrap();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        let Some(done) = driver.completion() else { return false };
        let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
        result.unwrap().is_valid()
    }));
    assert_eq!(driver.shutdown(PATIENCE * 3), 0);
    assert!(cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n"));
    assert!(driver.nodes().iter().all(|node| node.debts == 0 && node.debts_dropped == 0));
}

/// The processor time that this thread has used.
fn busy() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("no negative time")
}

#[test]
fn a_driver_that_ends_in_a_foreign_loop_sleeps_until_its_nodes_have_answered() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(64));
    let mut driver = Driver::new(cluster.config(), poll.registry(), 0..4).unwrap();
    let mut lock = |driver: &mut Driver, key: &str| {
        let wait = Retry::every(ms(5), ms(5)).timeout(PATIENCE);
        let (mut lease, mut is_asked) = (None, false);
        assert!(eventually(PATIENCE, || {
            uninterrupted(|| poll.poll(&mut events, Some(Duration::ZERO))).unwrap();
            assert!(events.iter().all(|event| driver.ready(event)));
            driver.drive();
            if !is_asked && driver.voters().count() == 3 {
                driver.lock(key, LockOptions::new(TTL).retry(wait)).unwrap();
                is_asked = true;
            }
            if let Some(done) = driver.completion() {
                let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
                lease = result.ok();
            }
            lease.as_ref().is_some_and(|lease| lease.votes().count() == 3)
        }));
        lease
    };
    drop(lock(&mut driver, "a"));
    driver.try_lock("never taken", TTL).unwrap();
    cluster.node(0).freeze();
    let limit = ms(600);
    let (before, begin) = (busy(), redbolt::now());
    let owed = ends_within(limit, || driver.shutdown(limit));
    let (spent, elapsed) = (busy() - before, begin.until(redbolt::now()));
    assert_eq!(owed, 2, "the frozen node has not answered for either key");
    assert!(elapsed >= limit, "it is waited for: {elapsed:?}");
    assert!(spent < limit / 4, "busy for {spent:?} of {elapsed:?}");
    assert!(!cluster.node(1).exists("a") && !cluster.node(2).exists("a"));
    // The call wakes up as soon as the node does, and ends when the node has answered.
    let thaw = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(ms(100));
            cluster.node(0).thaw();
        });
        assert_eq!(driver.shutdown(PATIENCE), 0);
        redbolt::now()
    });
    assert!(begin.until(thaw) < PATIENCE, "it slept over the answer");
    assert!(!cluster.node(0).exists("a"));
}
