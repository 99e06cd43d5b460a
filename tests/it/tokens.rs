//! Tokens of the caller's own: every operation takes them, and none shares one between attempts.

use redbolt::inspect::KeyState;
use redbolt::{ExtendError, KeepAlive, LockOptions, Retry, UnlockError, Unlocked};

use super::common::{
    Clients as _, Cluster, PATIENCE, TTL, cycle, eventually, given_away, ms, shared_away, taken,
};

const MINE: &[u8] = b"worker-7 \0\r\n";

fn mine() -> LockOptions {
    LockOptions::new(TTL).token(MINE)
}

#[test]
fn a_lock_with_a_given_token_is_extended_given_away_adopted_and_released() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let mut client = cluster.client();
    let mut lease = client.try_lock("k", mine()).unwrap();
    assert_eq!(lease.token().as_bytes(), MINE);
    client.extend(&mut lease, TTL).unwrap();
    let values = || cluster.values("k").into_iter().flatten().filter(|value| value == MINE).count();
    assert!(eventually(PATIENCE, || values() == 5));

    let mut other = cluster.client();
    let error = other.adopt("k", b"worker-8", TTL).unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    assert_eq!(other.unlock_token("k", b"worker-8"), Err(UnlockError::NotHeld));
    let (key, token) = given_away(&mut client, lease);
    let mut adopted = other.adopt(&key, &token, TTL).unwrap();
    assert_eq!(adopted.token().as_bytes(), MINE);
    other.extend(&mut adopted, TTL).unwrap();
    let status = other.status("k").unwrap();
    let is_mine = |state: &KeyState| matches!(state, KeyState::Held { token, .. } if token == MINE);
    assert!(status.iter().all(|node| is_mine(&node.state)), "{status:?}");
    let (key, _) = given_away(&mut other, adopted);
    assert_eq!(client.unlock_token(&key, MINE).unwrap(), Unlocked::Released);
    client.wait_released(PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
    // The same token again is the caller's business, once the first lock is gone.
    let lease = client.try_lock("k", mine()).unwrap();
    assert_eq!(client.unlock(lease).unwrap(), Unlocked::Released);
}

#[test]
fn a_lock_with_a_given_token_is_kept_alive_and_watched() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    let acquire = LockOptions::new(ms(1_500)).token(MINE).keep_alive(KeepAlive::new()).watch(true);
    let lease = client.try_lock("k", acquire).unwrap();
    let first = lease.deadline();
    assert!(eventually(PATIENCE, || {
        client.drive().unwrap();
        lease.deadline() > first && client.driver().watched_by(&lease).count() == 3
    }));
    for index in 0..2 {
        // Another holder with the same token is somebody else all the same.
        let reply = cluster.node(index).command(&[&b"SET"[..], b"k", MINE, b"PX", b"60000"]);
        assert_eq!(reply, b"+OK\r\n");
    }
    let is_told = eventually(PATIENCE, || {
        client.drive().unwrap();
        client.driver().watched_by(&lease).count() < 3 || lease.is_lost()
    });
    assert!(is_told, "its nodes tell nothing");
}

/// A second attempt with one token could delete the keys of the first: whatever the call allows, one
/// is made.
#[test]
fn a_given_token_is_never_tried_twice() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    (0..3).for_each(|index| cluster.occupy(index, "k"));
    let all = || (0..3).map(|index| cluster.set_count(index)).sum::<u64>();
    let retries = [
        Retry::every(ms(1), ms(0)).timeout(TTL),
        Retry::every(ms(1), ms(0)).attempts(50),
        Retry::custom(|_| ms(1)).attempts(50),
    ];
    for retry in retries {
        let before = all();
        taken(client.try_lock("k", mine().retry(retry)));
        taken(client.lock("k", mine().retry(retry).timeout(TTL)));
        client.wait_released(PATIENCE);
        assert!(eventually(PATIENCE, || all() == before + 6), "{} SETs", all() - before);
    }
    cycle(&mut client, "free");
}

#[cfg(feature = "shared")]
#[test]
fn a_shared_handle_takes_given_tokens_and_never_hands_them_on() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = redbolt::Shared::connect(cluster.config()).unwrap();
    let mut guard = shared.lock("k", mine()).unwrap();
    shared.extend(&mut guard, TTL).unwrap();
    assert_eq!(guard.token().unwrap().as_bytes(), MINE);
    assert!(
        matches!(shared.lock("k", mine()), Err(redbolt::LockError::Taken(_))),
        "it does not queue"
    );
    let (key, token) = shared_away(&shared, guard);
    let adopted = shared.adopt(&key, &token, TTL).unwrap();
    drop(adopted);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
    let guard = shared.lock("k", mine()).unwrap();
    assert_eq!(shared.unlock(guard).unwrap(), Unlocked::Released);
    assert_eq!(shared.unlock_token("k", MINE), Err(UnlockError::NotHeld));
}
