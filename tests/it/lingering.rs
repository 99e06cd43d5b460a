//! Locks that linger behind their unlock, on real servers: taken again without a command, and given
//! to whoever else waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, Lease, LockError, LockOptions, Unlocked};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, TTL, eventually, ms, on_each_kind, wait_released,
};
use super::waiting::SELDOM;

/// Far longer than a test waits for what must come at once.
const LINGER: std::time::Duration = ms(4_000);

fn options() -> LockOptions {
    LockOptions::new(TTL).linger(LINGER)
}

fn until<T>(driver: &mut Driver, mut wanted: impl FnMut(&mut Driver) -> Option<T>) -> T {
    let end = redbolt::now() + PATIENCE;
    loop {
        driver.drive();
        if let Some(it) = wanted(driver) {
            return it;
        }
        assert!(redbolt::now() < end, "it does not come");
        thread::yield_now();
    }
}

fn ready(cluster: &Cluster) -> Driver {
    let mut driver = Driver::standalone(cluster.config()).expect("a driver");
    until(&mut driver, |driver| driver.is_settled().then_some(()));
    driver
}

fn completed(driver: &mut Driver) -> Option<Lease> {
    let Outcome::Lock(result) = driver.completion()?.result else { panic!("not a lock") };
    Some(result.expect("nobody has it"))
}

fn lock(driver: &mut Driver) -> Lease {
    driver.try_lock("k", options()).expect("room");
    until(driver, completed)
}

fn unlock(driver: &mut Driver, lease: Lease) {
    driver.unlock(lease).expect("it is held");
    let unlocked = until(driver, Driver::completion).result;
    assert!(matches!(unlocked, Outcome::Unlock(Ok(Unlocked::Released))), "{unlocked:?}");
}

#[test]
fn a_driver_takes_its_lock_again_without_a_command_and_gives_it_to_who_waits() {
    on_each_kind(|kind| {
        let Some(cluster) = Cluster::start(&[kind; 3], &[]) else { return };
        let mut driver = ready(&cluster);
        let mut lease = lock(&mut driver);
        for _ in 0..20 {
            unlock(&mut driver, lease);
            driver.try_lock("k", options()).expect("room");
            // Not driven in between.
            lease = completed(&mut driver).expect("it is there at once");
        }
        drop(lease);
        driver.drive();
        assert_eq!((cluster.calls("set"), cluster.holders("k")), (3, 3), "{}", kind.name());

        let config = cluster.config().retry(SELDOM.timeout(PATIENCE));
        let other = Client::connect(config).expect("the nodes are there");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let began = redbolt::now();
                let lease = other.lock("k", TTL).wait().expect("its turn comes");
                assert!(redbolt::now().saturating_since(began) < LINGER / 2, "it lingered on");
                is_over.store(true, Ordering::Release);
                lease.unlock().wait().expect("it is held");
                wait_released(&other, PATIENCE);
            });
            until(&mut driver, |_| is_over.load(Ordering::Acquire).then_some(()));
        });
        assert!(eventually(PATIENCE, || cluster.holders("k") == 0), "{}", kind.name());
    });
}

#[test]
fn what_a_driver_lets_linger_is_released_at_its_end() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let mut driver = ready(&cluster);
    let lease = lock(&mut driver);
    unlock(&mut driver, lease);
    assert_eq!(cluster.holders("k"), 3);
    assert_eq!(driver.shutdown(PATIENCE), 0);
    assert_eq!(cluster.holders("k"), 0);
    // Or when its time is over.
    let mut driver = ready(&cluster);
    driver.try_lock("k", options().linger(ms(50))).expect("room");
    let lease = until(&mut driver, completed);
    unlock(&mut driver, lease);
    until(&mut driver, |_| (cluster.holders("k") == 0).then_some(()));
}

#[test]
fn a_client_takes_its_lock_again_and_gives_it_to_who_waits() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
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
}

/// Nobody takes it again: the I/O thread, which may be asleep, is woken for its end.
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
        // What is left of it is soon too little for the last of them.
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
fn nobody_lets_a_lock_linger_who_does_not_hear_who_waits() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let config = cluster.config().direct_wake(false);
    let shared = Client::connect(config).expect("the nodes are there");
    let refused = shared.lock("k", options()).wait().expect_err("nobody is woken");
    assert!(matches!(refused, LockError::NoLinger { .. }), "{refused}");
    let heard = Client::connect(cluster.config()).expect("the nodes are there");
    let refused = heard.lock("k", options().announced()).wait().expect_err("it is a leader's");
    assert!(matches!(refused, LockError::NoLinger { .. }), "{refused}");
}
