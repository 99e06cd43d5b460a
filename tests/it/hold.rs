//! Locks that are held for long: the client keeps them alive, and learns in time that one is lost.

use std::thread;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::engine::LostCause;
use redbolt::{Client, ExtendError, Guard, LockError, LockOptions, UnlockError, Unlocked, now};

use super::common::{
    Clients as _, Cluster, PATIENCE, TTL, eventually, given_away, ms, soon_after, taken,
    wait_released,
};

fn kept(ttl: Duration) -> LockOptions {
    LockOptions::new(ttl).keep_alive()
}

/// A lock that is kept alive, where the time for answers is short: a busy machine may need a further try.
#[track_caller]
fn locked(client: &Client, ttl: Duration) -> Guard {
    let mut lease = None;
    eventually(PATIENCE, || {
        lease = client.try_lock("k", kept(ttl)).wait().ok();
        lease.is_some()
    });
    lease.expect("the lock is free")
}

/// Waits until `lease` is lost: at its deadline, if the client learns nothing earlier.
#[track_caller]
fn until_lost(lease: &Guard) {
    assert!(lease.lost().wait_for(PATIENCE).is_some(), "still held after {PATIENCE:?}");
    assert!(lease.is_lost() && !lease.is_valid() && lease.remaining().is_zero());
    assert!(lease.deadline() <= now());
}

/// The lock is held far beyond its TTL with one token; after its unlock it stays free.
#[test]
fn auto_extension_keeps_a_lock_for_three_ttls_and_stops_at_unlock() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let (client, other) = (cluster.client(), cluster.client());
    let ttl = ms(1_300);
    let lease = client.try_lock("k", kept(ttl)).wait().unwrap();
    let token = lease.token().unwrap();
    let end = now() + ttl * 3;
    while now() < end {
        assert!(lease.lost().wait_for(ms(20)).is_none());
        assert!(lease.is_valid() && !lease.is_lost() && lease.token().unwrap() == token);
        taken(other.try_lock("k", ttl).wait());
    }
    assert!(eventually(PATIENCE, || { cluster.holders("k") == 5 }));
    assert_eq!(cluster.values("k"), vec![Some(token.as_bytes().to_vec()); 5]);
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
    thread::sleep(ttl);
    assert_eq!(cluster.holders("k"), 0, "nothing brings it back");
}

/// One node of five restarts empty, another stands still for a while: twenty-five TTLs go by.
#[test]
fn a_kept_lock_outlives_a_restart_and_a_freeze_of_one_node() {
    let Some(mut cluster) = Cluster::mixed(5) else { return };
    // Short enough that the frozen node counts as stalled.
    let client = cluster.whole(cluster.config().node_timeout(ms(500)));
    let other = cluster.client();
    let ttl = ms(1_000);
    let mut lease = client.try_lock("k", kept(ttl)).wait().unwrap();
    let token = lease.token().unwrap();
    assert!(eventually(PATIENCE, || { cluster.holders("k") == 5 }));
    for turn in 0..25 {
        match turn {
            5 => cluster.node_mut(4).restart(),
            10 => cluster.node(0).freeze(),
            15 => cluster.node(0).thaw(),
            _ => {}
        }
        assert!(lease.lost().wait_for(ttl).is_none(), "turn {turn}");
        assert!(lease.is_valid() && lease.token().unwrap() == token);
    }
    assert!(eventually(PATIENCE, || lease.extend(TTL).wait().is_ok()));
    assert!(other.try_lock("k", ttl).wait().is_err());
    let values = cluster.values("k");
    let held = values.iter().filter(|value| value.as_deref() == Some(token.as_bytes())).count();
    // The node that stood still has the lock again. The one that restarted has no vote yet.
    assert_eq!(held, 4, "{values:?}");
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
}

/// The holder releases at any moment of an extension, in either way: the key never comes back.
#[test]
fn a_thousand_releases_of_kept_locks_leave_no_key() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let ttl = ms(30);
    for turn in 0..1_000_u64 {
        // On a busy machine a round may take longer than the lease.
        let mut tries = (0..20).map(|_| client.try_lock("k", kept(ttl)).wait());
        let lease = tries.find_map(|result| match result {
            Err(LockError::Expired(_)) => None,
            result => Some(result.unwrap()),
        });
        let lease = lease.expect("a round takes less than the lease now and then");
        let third = lease.deadline() - (ttl - ms(3)) + ttl / 3;
        // Some releases go before the extension, some right behind it, and some behind its answer.
        let at = third - ms(1) + Duration::from_micros(turn % 20 * 100);
        thread::sleep(now().until(at - ms(1)));
        while now() < at {}
        if turn % 3 == 0 {
            drop(lease);
            wait_released(&client, PATIENCE);
        } else {
            // On a busy machine the lease may be over by then.
            let result = lease.unlock().wait();
            assert!(matches!(result, Ok(_) | Err(UnlockError::NotHeld)), "{result:?}");
            wait_released(&client, PATIENCE);
        }
        assert_eq!(cluster.holders("k"), 0, "turn {turn}");
    }
}

#[test]
fn auto_extension_goes_on_after_nodes_were_away_for_a_part_of_the_validity() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.whole(cluster.config().node_timeout(ms(200)));
    let ttl = ms(3_000);
    let lease = locked(&client, ttl);
    let first = lease.deadline();
    (0..2).for_each(|index| cluster.node(index).freeze());
    // Past a third of the TTL: extensions miss their quorum.
    assert!(lease.lost().wait_for(ttl * 6 / 10).is_none());
    assert!(lease.deadline() <= first && lease.is_valid());
    (0..2).for_each(|index| cluster.node(index).thaw());
    assert!(lease.lost().wait_for(ttl).is_none());
    assert!(lease.is_valid() && lease.deadline() > first + ttl / 3);
}

/// No node answers any more, and no node reports an error: the holder knows by the deadline.
#[test]
fn the_loss_is_signalled_by_the_deadline_with_every_node_frozen() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.whole(cluster.config().node_timeout(ms(200)));
    let ttl = ms(1_500);
    soon_after(ttl / 4, || {
        let lease = locked(&client, ttl);
        assert!(lease.lost().wait_for(ttl).is_none());
        cluster.nodes().for_each(super::common::RealServer::freeze);
        until_lost(&lease);
        let late = lease.deadline().until(now());
        cluster.nodes().for_each(super::common::RealServer::thaw);
        // The commands that the nodes had received run now, and change nothing for the holder.
        thread::sleep(ms(200));
        assert!(!lease.is_valid() && lease.is_lost());
        drop(lease);
        wait_released(&client, PATIENCE);
        assert_eq!(cluster.holders("k"), 0);
        late
    });
}

/// Whatever removes the keys, an extension tells the holder before the deadline would.
#[test]
fn every_way_of_losing_the_lock_is_signalled_with_the_next_extension() {
    for way in ["FLUSHALL", "DEL", "takeover", "unlock_token", "PEXPIRE"] {
        let Some(cluster) = Cluster::mixed(5) else { return };
        let client = cluster.client();
        let ttl = ms(3_000);
        let lease = client.try_lock("k", kept(ttl)).wait().unwrap();
        assert!(eventually(PATIENCE, || cluster.holders("k") == 5));
        // `unlock_token` tells the holder, which may know before that call ends.
        let deadline = lease.deadline();
        for index in 0..3 {
            let node = cluster.node(index);
            match way {
                "FLUSHALL" => drop(node.command(&["FLUSHALL"])),
                "DEL" => drop(node.command(&["DEL", "k"])),
                "PEXPIRE" => drop(node.command(&["PEXPIRE", "k", "1"])),
                "takeover" => cluster.occupy(index, "k"),
                _ => {}
            }
        }
        if way == "unlock_token" {
            cluster.client().unlock_token("k", lease.token().unwrap()).wait().unwrap();
        }
        until_lost(&lease);
        assert!(lease.deadline() < deadline, "{way}: known by an extension");
        drop(lease);
        wait_released(&client, PATIENCE);
        let expected = if way == "takeover" { 3 } else { 0 };
        assert_eq!(cluster.holders("k"), expected, "{way}");
    }
}

#[test]
fn a_lost_lease_is_told_by_the_drivers_loop() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut driver = Driver::standalone(cluster.config()).unwrap();
    let drive = |driver: &mut Driver| {
        for _ in 0..100_000 {
            driver.drive();
            if let Some(done) = driver.completion() {
                return done;
            }
            thread::sleep(driver.timeout().unwrap_or(ms(1)).min(ms(1)));
        }
        panic!("nothing is told")
    };
    let op = driver.try_lock("k", kept(ms(3_000))).unwrap();
    let done = drive(&mut driver);
    let Outcome::Lock(Ok(lease)) = done.result else { panic!("{done:?}") };
    cluster.nodes().for_each(|node| drop(node.command(&["FLUSHALL"])));
    let done = drive(&mut driver);
    assert!(matches!(done.result, Outcome::Lost(LostCause::Gone)), "{done:?}");
    assert_eq!(done.id, op);
    assert!(lease.is_lost() && !lease.is_valid());
    drop(lease);
    driver.shutdown(PATIENCE);
}

/// Another process needs only key and token to go on; the first one keeps nothing alive.
#[test]
fn a_kept_lock_is_handed_over_and_kept_by_its_new_holder() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (first, second) = (cluster.client(), cluster.client());
    let ttl = ms(1_500);
    let lease = first.try_lock("k", kept(ttl)).wait().unwrap();
    assert!(lease.lost().wait_for(ttl).is_none());
    let (key, token) = given_away(lease);
    let lease = second.adopt(&key, &token, kept(ttl)).wait().unwrap();
    let end = now() + ttl * 3;
    while now() < end {
        assert!(lease.lost().wait_for(ms(10)).is_none());
        assert!(lease.is_valid() && lease.token().unwrap() == token);
    }
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    thread::sleep(ttl);
    assert_eq!(cluster.holders("k"), 0);

    // A lock that is given away and adopted by no client ends with its TTL.
    let lease = first.try_lock("k", kept(ttl)).wait().unwrap();
    given_away(lease);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
}

#[test]
fn with_lock_keeps_its_lock_and_says_when_it_is_lost() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let ttl = ms(1_500);
    let result = client.with_lock("k", ttl, |held| {
        let begin = now();
        while begin.until(now()) < ttl * 2 {
            held.extend_if_due().wait().unwrap();
            assert!(held.is_valid());
            thread::sleep(ms(20));
        }
        cluster.nodes().for_each(|node| drop(node.command(&["DEL", "k"])));
        let error = loop {
            if let Err(error) = held.extend_if_due().wait() {
                break error;
            }
            thread::sleep(ms(5));
        };
        assert!(matches!(error, ExtendError::Lost(_)), "{error}");
        assert!(!held.is_valid() && held.remaining().is_zero());
        Ok::<_, LockError>(())
    });
    assert!(matches!(result, Err(LockError::Lost)), "{result:?}");

    let limited = Client::connect(cluster.config().max_extensions(1)).unwrap();
    let result = limited.with_lock("k", ttl, |held| {
        loop {
            match held.extend_if_due().wait() {
                Ok(()) => thread::sleep(ms(5)),
                Err(ExtendError::LimitReached) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(held.is_valid(), "until its deadline it is held");
        Ok::<_, LockError>(())
    });
    result.unwrap();
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
}

#[test]
fn the_error_and_the_panic_of_the_work_come_before_a_release_that_fails() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let lose = || cluster.nodes().for_each(|node| drop(node.command(&["DEL", "k"])));
    let error = client.with_lock("k", TTL, |_| {
        lose();
        Err::<(), Box<dyn std::error::Error>>("mine".into())
    });
    assert_eq!(error.unwrap_err().to_string(), "mine");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.with_lock("k", TTL, |_| -> Result<(), LockError> {
            lose();
            panic!("mine")
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"mine"));
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
}
