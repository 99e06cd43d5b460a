//! Extension: it moves the end of a lease that a quorum holds, and never revives a lost lease.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redbolt::{Cause, Client, ExtendError, LockError, UnlockError, Unlocked, now};

use super::common::{
    Clients as _, Cluster, FOREIGN, Looped, PATIENCE, TTL, ends_within, eventually, fresh_config,
    given_away, ms, taken, wait_released,
};

fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).expect("a TTL is short")
}

#[test]
fn an_extension_resets_the_ttl_on_every_node_and_keeps_the_token() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    let mut lease = client.try_lock("k", TTL).wait().unwrap();
    let token = lease.token().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 5));
    for ttl in [TTL, TTL * 5 / 4, TTL] {
        let before = now();
        lease.extend(ttl).wait().unwrap();
        let validity = ttl - (ttl / 100 + ms(2));
        assert!(lease.deadline() >= before + validity);
        assert!(lease.remaining() <= validity, "reset, not added to");
        // The last nodes may still be working when a quorum has decided.
        let is_reset = |pttl: i64| pttl <= millis(ttl) && pttl > millis(ttl) - 5_000;
        assert!(eventually(PATIENCE, || cluster.nodes().all(|node| is_reset(node.pttl("k")))));
    }
    assert_eq!(lease.token().unwrap(), token);
    assert_eq!(cluster.values("k"), vec![Some(token.as_bytes().to_vec()); 5]);
    // The client may read an answer later than the node gave it.
    assert!(eventually(PATIENCE, || lease.votes().count() == 5), "{lease:?}");
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
}

/// The command may have been written, so from then on the nearer of the two ends counts.
#[test]
fn an_extension_may_shorten_a_lease() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let mut lease = client.try_lock("k", TTL).wait().unwrap();
    let short = ms(1_500);
    lease.extend(short).wait().unwrap();
    assert!(lease.remaining() < short);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
    assert!(!lease.is_valid(), "nobody holds it beyond its keys");
    assert!(matches!(lease.extend(TTL).wait(), Err(ExtendError::Expired)));
}

#[test]
fn an_extension_after_expiry_fails_and_creates_nothing() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    let mut lease = client.try_lock("k", ms(1_000)).wait().unwrap();
    let adopted = client.try_lock("adopted", ms(1_000)).wait().unwrap();
    let (_, token) = given_away(adopted);
    assert!(eventually(PATIENCE, || !lease.is_valid() && cluster.holders("adopted") == 0));
    assert!(matches!(lease.extend(TTL).wait(), Err(ExtendError::Expired)));
    let error = client.adopt("adopted", &token, TTL).wait().unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    wait_released(&client, PATIENCE);
    assert!(eventually(PATIENCE, || cluster.holders("k") + cluster.holders("adopted") == 0));
}

/// An operator deleted the keys before their time.
#[test]
fn an_extension_of_lost_keys_is_lost_and_creates_nothing() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    let mut lease = client.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 5));
    cluster.nodes().for_each(|node| drop(node.command(&["FLUSHALL"])));
    let error = lease.extend(TTL).wait().unwrap_err();
    let ExtendError::Lost(ballot) = &error else { panic!("{error}") };
    assert!(ballot.denied() >= 3 && error.to_string().contains("lost"), "{error}");
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
    assert_eq!(lease.unlock().wait(), Err(UnlockError::NotHeld));
}

#[test]
fn an_extension_of_a_key_that_another_holds_fails_and_leaves_it_alone() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    let mut lease = client.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 5));
    (0..5).for_each(|index| cluster.occupy(index, "k"));
    let error = lease.extend(TTL / 2).wait().unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    drop(lease);
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.values("k"), vec![Some(FOREIGN.as_bytes().to_vec()); 5]);
    assert!(cluster.nodes().all(|node| node.pttl("k") > millis(TTL)));
}

/// Two nodes of five lose nothing and win nothing; when the rest is back, the client can extend the
/// lease.
#[test]
fn an_extension_that_misses_the_quorum_removes_nothing_and_may_be_tried_again() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let node_timeout = ms(1_000);
    let client = cluster.whole(cluster.config().node_timeout(node_timeout));
    let mut lease = client.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 5));
    let old = lease.deadline();
    (0..3).for_each(|index| cluster.node(index).freeze());
    let error = ends_within(node_timeout, || lease.extend(TTL * 5 / 4).wait()).unwrap_err();
    let ExtendError::NoQuorum(ballot) = &error else { panic!("{error}") };
    assert_eq!(ballot.granted(), 2);
    assert!(error.to_string().contains(Cause::Timeout.text()) || ballot.votes().count() == 5);
    assert_eq!(lease.deadline(), old, "the earlier of the old and the new one");
    assert!(lease.is_valid());
    let error = ends_within(node_timeout, || lease.extend(TTL / 2).wait()).unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum(_)), "{error}");
    assert!(lease.remaining() <= TTL / 2, "it may have been shortened");
    (0..3).for_each(|index| cluster.node(index).thaw());
    assert!(eventually(PATIENCE, || lease.extend(TTL).wait().is_ok()));
    assert!(lease.remaining() > TTL / 2);
    assert_eq!(cluster.holders("k"), 5);
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
}

#[test]
fn a_node_that_restarted_empty_is_not_counted_and_gets_no_key() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    for index in 0..3 {
        let client = cluster.client();
        let mut lease = client.try_lock("k", TTL / 2).wait().unwrap();
        assert!(eventually(PATIENCE, || cluster.holders("k") == 3));
        cluster.node_mut(index).restart();
        lease.extend(TTL).wait().unwrap();
        assert!(lease.remaining() > TTL / 2);
        // After its reconnection, the node still has nothing to extend.
        assert!(eventually(PATIENCE, || {
            client.leader("k").wait().unwrap();
            client.nodes().wait().iter().all(|node| node.cause == Cause::None)
        }));
        lease.extend(TTL).wait().unwrap();
        assert_eq!(cluster.holders("k"), 2);
        assert!(!cluster.node(index).exists("k"));
        // Another client's key on the empty node is no vote for the lease: one more loss is too
        // many.
        cluster.occupy(index, "k");
        let other = (index + 1) % 3;
        cluster.node(other).command(&["DEL", "k"]);
        let error = lease.extend(TTL).wait().unwrap_err();
        // The client does not know what the restarted node holds if an extension of its old life is
        // open.
        assert!(matches!(error, ExtendError::Lost(_) | ExtendError::NoQuorum(_)), "{error}");
        drop(lease);
        wait_released(&client, PATIENCE);
        assert_eq!(cluster.holders("k"), 1);
        cluster.node(index).command(&["DEL", "k"]);
    }
}

#[test]
fn ttls_out_of_range_and_dead_handles_are_refused_before_anything_is_sent() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let max_ttl = Duration::from_secs(5);
    let client = Client::connect(cluster.config().max_ttl(max_ttl)).unwrap();
    let mut lease = client.try_lock("k", max_ttl).wait().unwrap();
    let deadline = lease.deadline();
    for ttl in [Duration::ZERO, ms(3), max_ttl + ms(1), Duration::MAX] {
        let error = lease.extend(ttl).wait().unwrap_err();
        assert!(
            matches!(error, ExtendError::InvalidTtl { ttl: t, most, .. } if (t, most) == (ttl, max_ttl))
        );
        let error = client.adopt("k", lease.token().unwrap(), ttl).wait().unwrap_err();
        assert!(matches!(error, ExtendError::InvalidTtl { .. }), "{error}");
    }
    for (key, token) in [(&b""[..], &b"t"[..]), (b"k", b""), (&[0; 4097], b"t"), (b"k", &[0; 256])]
    {
        let error = client.adopt(key, token, max_ttl).wait().unwrap_err();
        assert!(matches!(error, ExtendError::InvalidName), "{error}");
    }
    assert_eq!(lease.deadline(), deadline);
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
}

#[test]
fn another_client_adopts_a_detached_lock_and_extends_and_unlocks_it() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let first = cluster.client();
    let lease = first.try_lock("k", TTL / 2).wait().unwrap();
    let (key, token) = given_away(lease);
    drop(first);
    let second = cluster.client();
    let mut lease = second.adopt(&key, &token, TTL).wait().unwrap();
    assert_eq!((lease.key(), lease.token().unwrap()), (&b"k"[..], token));
    assert!(lease.votes().count() >= 3 && lease.remaining() > TTL / 2);
    lease.extend(TTL).wait().unwrap();
    taken(second.try_lock("k", TTL).wait());
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    wait_released(&second, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
    let error = second.adopt(&key, b"never", TTL).wait().unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");

    // An adopted lock that is dropped is released like any other.
    let lease = second.try_lock("k", TTL).wait().unwrap();
    let (key, token) = given_away(lease);
    let third = cluster.client();
    drop(third.adopt(&key, &token, TTL).wait().unwrap());
    drop(third);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
}

/// Work for four TTLs under a lock of one TTL.
#[test]
fn keeping_a_lock_holds_it_for_longer_than_its_ttl_with_one_token() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let other = cluster.client();
    let ttl = ms(1_500);
    let begin = now();
    let result = client.with_lock("k", ttl, |held| {
        let token = held.token().unwrap();
        while begin.until(now()) < ttl * 3 {
            held.extend_if_due().wait().expect("a healthy quorum");
            assert!(held.is_valid() && held.token().as_ref() == Some(&token));
            taken(other.try_lock("k", ttl).wait());
            std::thread::sleep(ms(20));
        }
        Ok::<_, LockError>(())
    });
    result.unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0), "unlocked, and not extended again");
}

#[test]
fn a_thousand_extensions_never_bring_a_released_key_back() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for node in cluster.nodes() {
        let client = Client::connect(fresh_config(vec![node.url()])).unwrap();
        let other = Client::connect(fresh_config(vec![node.url()])).unwrap();
        for _ in 0..350 {
            let mut lease = client.try_lock("k", TTL).wait().unwrap();
            let token = lease.token().unwrap();
            std::thread::scope(|scope| {
                let unlock = scope.spawn(|| other.unlock_token("k", &token).wait().unwrap());
                match lease.extend(TTL).wait() {
                    Ok(()) => {}
                    Err(error) => assert!(matches!(error, ExtendError::Lost(_)), "{error}"),
                }
                assert_eq!(unlock.join().unwrap(), Unlocked::Released);
            });
            assert!(!node.exists("k"));
            assert_eq!(lease.unlock().wait(), Err(UnlockError::NotHeld));
        }
        let lease = client.try_lock("k", TTL).wait().unwrap();
        drop(lease);
    }
}

/// Its holder may be at work.
#[test]
fn an_adoption_that_is_given_up_leaves_the_lock_as_it_is() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (holder, other) = (cluster.client(), cluster.client());
    let guard = holder.try_lock("k", TTL).wait().unwrap();
    let token = guard.token().unwrap();
    let mut adoption = other.adopt("k", &token, TTL);
    let begun = Pin::new(&mut adoption).poll(&mut Context::from_waker(Waker::noop()));
    // The answers come before those of a later call.
    other.leader("k").wait().unwrap();
    drop(adoption);
    if let Poll::Ready(taken) = begun {
        given_away(taken.unwrap());
    }
    assert_eq!(other.shutdown(PATIENCE).wait(), 0);
    // The driver has the result of the adoption, and the program never takes it.
    let mut looped = Looped::connect(cluster.config());
    looped.driver().adopt("k", &token, TTL * 5 / 4).unwrap();
    assert!(eventually(PATIENCE, || {
        looped.driver().drive();
        cluster.nodes().all(|node| node.pttl("k") > millis(TTL))
    }));
    looped.pass(now() + ms(10));
    assert_eq!(looped.driver().shutdown(PATIENCE), 0);
    assert_eq!(cluster.holders("k"), 3);
    assert_eq!(guard.unlock().wait().unwrap(), Unlocked::Released);
}

/// As a program does that limits the time of each try.
#[test]
fn an_adoption_that_was_given_up_is_tried_again_at_once() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let (key, token) = given_away(client.try_lock("k", TTL).wait().unwrap());
    for _ in 0..20 {
        let mut first = client.adopt(&key, &token, TTL);
        let begun = Pin::new(&mut first).poll(&mut Context::from_waker(Waker::noop()));
        drop(first);
        let guard = match begun {
            Poll::Ready(guard) => guard,
            Poll::Pending => client.adopt(&key, &token, TTL).wait(),
        };
        given_away(guard.unwrap());
    }
}
