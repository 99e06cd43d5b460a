//! The prefix of the keys: the nodes have it, callers never see it, and every feature works below
//! it.

use std::thread;

use redbolt::{Client, Config, ConnectError, ExtendError, LockError, UnlockError, Unlocked};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, TTL, eventually, given_away, ms, taken, wait_released,
};

fn client_of(cluster: &Cluster, prefix: &str) -> Client {
    Client::connect(cluster.config().key_prefix(prefix)).expect("fresh servers are admitted")
}

/// Whether any message was sent.
fn publishes(cluster: &Cluster) -> bool {
    cluster.nodes().any(|server| {
        let stats = server.command(&["INFO", "commandstats"]);
        String::from_utf8_lossy(&stats).contains("cmdstat_publish")
    })
}

#[test]
fn the_nodes_have_the_prefix_and_callers_do_not() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = client_of(&cluster, "app1:");
    let mut lease = client.try_lock("sku:42", TTL).wait().unwrap();
    assert_eq!(lease.key(), b"sku:42");
    assert!(eventually(PATIENCE, || cluster.holders("app1:sku:42") == 5));
    assert_eq!(cluster.holders("sku:42"), 0);
    taken(client.try_lock("sku:42", TTL).wait());
    lease.extend(TTL).wait().unwrap();

    assert_eq!(client.wire_key("sku:42").unwrap(), b"app1:sku:42");
    let led = client.leader("sku:42").wait().unwrap();
    assert_eq!(led.leader().expect("it is held").token, lease.token().unwrap());

    let (key, token) = given_away(lease);
    assert_eq!(key, b"sku:42");
    let adopted = client.adopt(&key, &token, TTL).wait().unwrap();
    assert_eq!(adopted.key(), b"sku:42");
    let (key, token) = given_away(adopted);
    assert_eq!(client.unlock_token(&key, &token).wait().unwrap(), Unlocked::Released);
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("app1:sku:42"), 0);

    let lease = client.try_lock("sku:42", TTL).wait().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    drop(client.try_lock("dropped", TTL).wait().unwrap());
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("app1:dropped"), 0);
}

/// Two clients mean the same lock if prefix and key joined are the same.
#[test]
fn locks_below_different_prefixes_are_different_and_joined_names_are_the_same() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (one, two) = (client_of(&cluster, "a:"), client_of(&cluster, "b:"));
    let plain = cluster.client();
    let held = one.try_lock("k", TTL).wait().unwrap();
    let other = two.try_lock("k", TTL).wait().unwrap();
    taken(plain.try_lock("a:k", TTL).wait());
    held.unlock().wait().unwrap();
    drop(plain.try_lock("a:k", TTL).wait().unwrap());
    other.unlock().wait().unwrap();
}

#[test]
fn key_and_prefix_have_4096_bytes_together() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = client_of(&cluster, "prefix:");
    let most = vec![b'k'; 4089];
    let lease = client.try_lock(&most, TTL).wait().unwrap();
    assert_eq!(lease.key(), most);
    let (key, token) = given_away(lease);
    let over = vec![b'k'; 4090];
    let error = client.try_lock(&over, TTL).wait().unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { len: 4097 }), "{error}");
    assert!(matches!(client.unlock_token(&over, &token).wait(), Err(UnlockError::InvalidName)));
    assert!(matches!(client.adopt(&over, &token, TTL).wait(), Err(ExtendError::InvalidName)));
    assert!(matches!(client.leader(&over).wait(), Err(LockError::InvalidKey { .. })));
    assert!(matches!(client.try_lock("", TTL).wait(), Err(LockError::InvalidKey { len: 0 })));
    assert_eq!(client.unlock_token(&key, &token).wait().unwrap(), Unlocked::Released);

    let config = Config::new(cluster.urls()).unwrap().key_prefix([b'p'; 4096]);
    assert!(matches!(Client::connect(config), Err(ConnectError::Config(_))));
}

/// One of the two clients has a part of the key as its prefix: their messages name the key of the
/// nodes.
#[test]
fn a_waiter_below_a_prefix_is_woken_by_the_release() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let holder = client_of(&cluster, "jobs:");
    let seldom = redbolt::Retry::every(PATIENCE * 6, ms(0)).timeout(PATIENCE * 3);
    let config = cluster.config().key_prefix("jobs:night").retry(seldom);
    let waiter = Client::connect(config).unwrap();
    let lease = holder.try_lock("nightly", TTL).wait().unwrap();
    assert!(!publishes(&cluster));
    thread::scope(|scope| {
        let waits =
            scope.spawn(move || waiter.lock("ly", TTL).wait().map(|lease| lease.key().to_vec()));
        assert!(eventually(PATIENCE, || publishes(&cluster)), "it tells nobody");
        lease.unlock().wait().unwrap();
        // A blocking holder reads on with its next call.
        assert!(eventually(PATIENCE, || {
            wait_released(&holder, ms(1));
            waits.is_finished()
        }));
        assert_eq!(waits.join().unwrap().unwrap(), b"ly");
    });
}

#[test]
fn a_client_has_its_prefix_too() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(cluster.config().key_prefix("s:")).unwrap();
    let guard = shared.lock("k", TTL).wait().unwrap();
    assert_eq!(guard.key(), b"k");
    assert!(eventually(PATIENCE, || cluster.holders("s:k") == 3));
    assert_eq!(shared.wire_key("k").unwrap(), b"s:k");
    assert!(shared.leader("k").wait().unwrap().leader().is_some());
    let (key, token) = given_away(guard);
    let adopted = shared.adopt(&key, &token, TTL).wait().unwrap();
    assert_eq!(adopted.unlock().wait().unwrap(), Unlocked::Released);
    let over = vec![b'k'; 4095];
    assert!(matches!(shared.try_lock(&over, TTL).wait(), Err(LockError::InvalidKey { len: 4097 })));
    assert!(eventually(PATIENCE, || cluster.holders("s:k") == 0));
}

/// Waiters of one process have one key, and messages have another. A lease that a client elsewhere
/// waits for does not go round here for ever.
#[test]
fn a_waiter_elsewhere_below_a_prefix_is_not_forgotten_by_a_client() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let patient = redbolt::Retry::every(PATIENCE * 6, ms(0)).timeout(PATIENCE * 3);
    let config = || cluster.config().key_prefix("s:").retry(patient).local_turns(u32::MAX);
    let shared = Client::connect(config()).unwrap();
    let waiter = Client::connect(config()).unwrap();
    let guard = shared.lock("k", TTL).wait().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(move || waiter.lock("k", TTL).wait().map(|lease| lease.is_valid()));
        assert!(eventually(PATIENCE, || publishes(&cluster)), "it tells nobody");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let has_won = thread::scope(|here| {
            for _ in 0..3 {
                here.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        drop(shared.lock("k", TTL).wait().expect("its turn comes"));
                    }
                });
            }
            drop(guard);
            // Long before the lease that goes round here has too little left for the next waiter.
            let has_won = eventually(TTL / 4, || waits.is_finished());
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            has_won
        });
        assert!(has_won, "forgotten");
        assert!(waits.join().unwrap().unwrap());
    });
}
