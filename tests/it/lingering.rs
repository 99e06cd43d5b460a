//! Locks that linger after their unlock, on real servers: the client takes them again without a
//! command, and gives them to any other client that waits.

use redbolt::driver::Driver;
use redbolt::{Client, LockError, LockOptions, Unlocked};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, TTL, eventually, ms, on_each_kind, wait_released,
};
use super::waiting::SELDOM;

/// Far longer than a test waits for an event that must come at once.
const LINGER: std::time::Duration = ms(4_000);

fn options() -> LockOptions {
    LockOptions::new(TTL).linger(LINGER)
}

#[test]
fn a_client_takes_its_lock_again_and_gives_it_to_the_waiter() {
    on_each_kind(|kind| {
        let Some(cluster) = Cluster::start(&[kind; 3], &[]) else { return };
        let config = cluster.config().retry(SELDOM.timeout(PATIENCE));
        let shared = Client::connect(config.clone()).expect("the nodes are there");
        for turn in 0..20 {
            let guard = shared.lock("k", options()).wait().expect("nobody has it");
            if turn % 2 == 0 {
                drop(guard);
            } else {
                assert_eq!(guard.unlock().wait().expect("it is held"), Unlocked::Released);
            }
        }
        assert_eq!((cluster.calls("set"), cluster.holders("k")), (3, 3));

        let other = Client::connect(config).expect("the nodes are there");
        let began = redbolt::now();
        let lease = other.lock("k", TTL).wait().expect("its turn comes");
        assert!(redbolt::now().saturating_since(began) < LINGER / 2, "it lingered on");
        lease.unlock().wait().expect("it is held");
        wait_released(&other, PATIENCE);
        assert!(eventually(PATIENCE, || cluster.holders("k") == 0));

        drop(shared.lock("k", options()).wait().expect("nobody has it"));
        assert_eq!(shared.shutdown(PATIENCE).wait(), 0);
        assert_eq!(cluster.holders("k"), 0);
    });
}

/// No call takes the lock again: the I/O thread, which may be asleep, wakes up to release it.
#[test]
fn a_client_releases_what_has_lingered_for_long_enough() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let shared = Client::connect(cluster.config()).expect("the nodes are there");
    for options in [options(), options().keep_alive()] {
        drop(shared.lock("k", options.linger(ms(50))).wait().expect("nobody has it"));
        assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
    }
}

#[test]
fn a_call_that_the_lock_does_not_suit_goes_behind_its_release() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let shared = Client::connect(cluster.config()).expect("the nodes are there");
    for other in [options().keep_alive(), options().min_validity(TTL - ms(300))] {
        drop(shared.try_lock("k", options()).wait().expect("nobody has it"));
        let (began, sets) = (redbolt::now(), cluster.calls("set"));
        // Soon the lease has too little left for the last of these options.
        assert!(eventually(PATIENCE, || redbolt::now() > began + ms(300)));
        drop(shared.try_lock("k", other.clone()).wait().expect("its release is in front"));
        assert!(cluster.calls("set") >= sets + 2, "{other:?}");
    }
    // A token that was read belongs to one holder.
    let guard = shared.try_lock("k", options()).wait().expect("nobody has it");
    assert!(guard.token().is_some());
    drop(guard);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
    assert_eq!(shared.shutdown(PATIENCE).wait(), 0);
}

#[test]
fn a_lock_that_cannot_linger_is_refused() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let config = cluster.config().direct_wake(false);
    let shared = Client::connect(config).expect("the nodes are there");
    let refused = shared.lock("k", options()).wait().expect_err("nobody is woken");
    assert!(matches!(refused, LockError::NoLinger { .. }), "{refused}");
    let heard = Client::connect(cluster.config()).expect("the nodes are there");
    let refused = heard.lock("k", options().announced()).wait().expect_err("it is a leader's");
    assert!(matches!(refused, LockError::NoLinger { .. }), "{refused}");
    let mut driver = Driver::standalone(cluster.config()).expect("a driver");
    let refused = driver.try_lock("k", options()).expect_err("it is no client");
    assert!(matches!(refused, LockError::NoLinger { .. }), "{refused}");
}

/// The client that takes the lock away tells its holder.
#[test]
fn a_lock_that_was_taken_away_goes_to_no_other_caller_of_its_process() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let (shared, other) = (Client::connect(cluster.config()), Client::connect(cluster.config()));
    let (shared, other) = (shared.expect("the nodes are there"), other.expect("they are"));
    drop(shared.lock("k", options()).wait().expect("nobody has it"));
    let token = cluster.node(0).get("k").expect("it lingers");
    other.unlock_token("k", token).wait().expect("it is held");
    let lease = other.try_lock("k", TTL).wait().expect("it is free");
    // By then the first client has read the word of the second.
    for client in [&other, &shared] {
        client.leader("k").wait().expect("the nodes answer");
    }
    let refused = shared.try_lock("k", options()).wait();
    assert!(matches!(refused, Err(LockError::Taken(_))), "{refused:?}");
    // The third node may have kept the first client's lock for a moment longer.
    let theirs = lease.token().map(|token| token.as_bytes().to_vec());
    let held = cluster.values("k").into_iter().filter(|value| *value == theirs).count();
    assert!(held >= 2 && lease.is_valid(), "the other client's");
}
