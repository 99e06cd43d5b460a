//! Release: the client deletes only its own key, from anywhere and any number of times, and reports
//! the result.

use std::panic::{AssertUnwindSafe, catch_unwind};

use redbolt::{Cause, Client, ExtendError, LockError, UnlockError, Unlocked};

use super::common::{
    Clients as _, Cluster, FOREIGN, Kind, Looped, PATIENCE, TTL, causes, ends_within, eventually,
    fresh_config, ms, no_quorum, taken, timed, wait_released,
};

#[test]
fn a_wrong_token_unlocks_nothing() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let (holder, other) = (cluster.client(), cluster.client());
    let lease = holder.try_lock("k", TTL).wait().unwrap();
    let token = lease.token().unwrap().to_string();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 5));
    let almost = [&token[..39], if token.ends_with('0') { "1" } else { "0" }].concat();
    let upper = token.to_uppercase();
    for wrong in ["x", "", &token[..39], &almost, &upper, "*", FOREIGN] {
        if wrong == token {
            continue;
        }
        let error = if wrong.is_empty() { UnlockError::InvalidName } else { UnlockError::NotHeld };
        assert_eq!(other.unlock_token("k", wrong).wait(), Err(error), "{wrong}");
    }
    assert_eq!(other.unlock_token("other", &token).wait(), Err(UnlockError::NotHeld));
    assert_eq!(cluster.holders("k"), 5);
    assert!(matches!(other.unlock_token("", "t").wait(), Err(UnlockError::InvalidName)));
    assert!(matches!(other.unlock_token("k", [0; 256]).wait(), Err(UnlockError::InvalidName)));
    assert!(matches!(other.unlock_token([0; 4097], "t").wait(), Err(UnlockError::InvalidName)));
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
}

#[test]
fn an_unlock_after_expiry_leaves_the_next_holder_alone_and_says_not_held() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let (late, next) = (cluster.client(), cluster.client());
    let lease = late.try_lock("k", ms(1_000)).wait().unwrap();
    // Gone everywhere: a vote against the next client on a node whose key expires last would be
    // final.
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
    let held = next.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 5));
    assert_eq!(lease.unlock().wait(), Err(UnlockError::NotHeld));
    wait_released(&late, PATIENCE);
    assert_eq!(cluster.values("k"), vec![Some(held.token().unwrap().as_bytes().to_vec()); 5]);
    assert_eq!(held.unlock().wait().unwrap(), Unlocked::Released);
}

/// Once a node has the delete, another client may have the lock.
#[test]
fn a_lease_that_its_own_client_unlocks_by_token_is_over_before_a_delete_is_written() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = Looped::connect(cluster.config());
    let lease = client.try_lock("k", TTL).unwrap();
    client.driver().unlock_token("k", lease.token()).unwrap();
    assert!(!lease.is_valid());
}

#[test]
fn a_second_unlock_is_harmless_and_says_not_held() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    let token = lease.token().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    assert_eq!(client.unlock_token("k", &token).wait(), Err(UnlockError::NotHeld));
    let next = client.try_lock("k", TTL).wait().unwrap();
    assert_eq!(client.unlock_token("k", &token).wait(), Err(UnlockError::NotHeld));
    assert_eq!(next.unlock().wait().unwrap(), Unlocked::Released);

    // A lease that is alive is released by its token: its owner learns of that at the next call.
    let other = cluster.client();
    for unlocks in [&other, &client] {
        let mut lease = client.try_lock("k", TTL).wait().unwrap();
        let released = unlocks.unlock_token("k", lease.token().unwrap()).wait().unwrap();
        assert_eq!(released, Unlocked::Released);
        let error = lease.extend(TTL).wait().unwrap_err();
        assert!(matches!(error, ExtendError::Lost(_) | ExtendError::Expired), "{error}");
        assert_eq!(lease.unlock().wait(), Err(UnlockError::NotHeld));
    }
}

#[test]
fn another_client_with_key_and_token_unlocks_a_detached_lock() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let first = cluster.client();
    let mut lease = first.try_lock("k", TTL).wait().unwrap();
    let (key, token) = (lease.key().to_vec(), lease.detach().wait().unwrap());
    assert!(!lease.is_valid(), "it is over here");
    drop(lease);
    taken(first.try_lock("k", TTL).wait());
    drop(first);
    let second = cluster.client();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 5), "detached: no drop releases it");
    assert_eq!(second.unlock_token(&key, &token).wait().unwrap(), Unlocked::Released);
    wait_released(&second, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
}

/// A quorum releases the lock; the client pays the other nodes its debts when they are back.
#[test]
fn an_unlock_says_released_not_held_or_unknown_as_a_quorum_answers() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let node_timeout = ms(1_000);
    let client = cluster.whole(cluster.config().node_timeout(node_timeout));

    let lease = client.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 3));
    cluster.node(2).freeze();
    assert_eq!(ends_within(node_timeout, || lease.unlock().wait()).unwrap(), Unlocked::Released);
    cluster.node(2).thaw();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));

    let lease = client.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 3));
    cluster.node(0).freeze();
    cluster.node(1).freeze();
    let (unlocked, elapsed) = timed(|| lease.unlock().wait());
    assert_eq!(unlocked.unwrap(), Unlocked::Unknown);
    assert!(elapsed >= node_timeout, "{elapsed:?}");
    cluster.node(0).thaw();
    cluster.node(1).thaw();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));

    let lease = client.try_lock("k", TTL).wait().unwrap();
    for index in [0, 1] {
        assert!(eventually(PATIENCE, || cluster.node(index).command(&["DEL", "k"]) == b":1\r\n"));
    }
    assert_eq!(lease.unlock().wait(), Err(UnlockError::NotHeld));
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
}

#[test]
fn a_release_owed_to_a_dead_node_is_paid_when_it_is_back_with_its_keys() {
    let Some(mut cluster) = Cluster::start(
        &[Kind::Redis70, Kind::Valkey91],
        &["--appendonly", "yes", "--appendfsync", "always"],
    ) else {
        return;
    };
    for index in 0..2 {
        let client = Client::connect(cluster.config().node_timeout(ms(1_000))).unwrap();
        let lease = client.try_lock("k", TTL).wait().unwrap();
        cluster.node_mut(index).kill9();
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Unknown);
        assert_eq!(client.nodes().wait()[index].debts, 1);
        cluster.node_mut(index).restart();
        // The client may have paid by now.
        let is_paid = || client.nodes().wait()[index].debts == 0;
        assert!(cluster.node(index).exists("k") || is_paid(), "its keys were kept");
        assert!(eventually(PATIENCE, || {
            wait_released(&client, ms(50));
            cluster.holders("k") == 0
        }));
        assert_eq!(client.nodes().wait()[index].debts, 0);
    }
}

#[test]
fn a_scoped_lock_is_released_on_return_early_return_and_panic() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let holders = || cluster.holders("k");

    let value = client.with_lock("k", TTL, |held| {
        assert!(eventually(PATIENCE, || holders() == 3));
        assert!(held.is_valid() && held.remaining() > TTL / 2);
        assert_eq!(cluster.values("k")[0], held.token().map(|token| token.as_bytes().to_vec()));
        Ok::<_, LockError>(42)
    });
    assert_eq!(value.unwrap(), 42);
    assert!(eventually(PATIENCE, || holders() == 0));

    let value = client.with_lock("k", TTL, |_| Err::<(), _>(LockError::Cancelled));
    assert!(matches!(value, Err(LockError::Cancelled)));
    assert!(eventually(PATIENCE, || holders() == 0));

    let panic = catch_unwind(AssertUnwindSafe(|| {
        client.with_lock("k", TTL, |_| -> Result<(), LockError> { panic!("in the work") })
    }));
    let text = panic.unwrap_err();
    assert_eq!(text.downcast_ref::<&str>(), Some(&"in the work"));
    assert!(eventually(PATIENCE, || holders() == 0));

    // The client works fully after all that.
    let lease = client.try_lock("k", TTL).wait().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    cluster.occupy(0, "k");
    cluster.occupy(1, "k");
    let mut ran = false;
    let error = client.with_lock("k", TTL, |_| {
        ran = true;
        Ok::<_, LockError>(())
    });
    assert!(matches!(error, Err(LockError::Taken(_))) && !ran);
}

#[derive(Debug)]
enum WorkError {
    Own,
    Lock(LockError),
}

impl From<LockError> for WorkError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

/// The lock ends under the work: the work's own error counts, and without one the loss does.
#[test]
fn the_error_of_the_work_wins_over_the_loss_of_its_lock() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let lose = || {
        assert!(eventually(PATIENCE, || cluster.holders("k") == 3));
        for node in cluster.nodes() {
            assert_eq!(node.command(&["DEL", "k"]), b":1\r\n");
        }
    };
    let result = client.with_lock("k", TTL, |_| {
        lose();
        Err::<(), _>(WorkError::Own)
    });
    assert!(matches!(result, Err(WorkError::Own)), "{result:?}");
    let result = client.with_lock("k", TTL, |_| {
        lose();
        Ok::<_, WorkError>(())
    });
    assert!(matches!(result, Err(WorkError::Lock(LockError::Lost))), "{result:?}");
}

/// Unlocks and extensions need no memory: both go through where a lock does not.
#[test]
fn a_node_out_of_memory_still_extends_and_releases() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for node in cluster.nodes() {
        let client = Client::connect(fresh_config(vec![node.url()])).unwrap();
        let mut lease = client.try_lock("k", TTL / 2).wait().unwrap();
        assert_eq!(node.command(&["CONFIG", "SET", "maxmemory", "1"]), b"+OK\r\n");
        lease.extend(TTL).wait().unwrap();
        assert!(lease.remaining() > TTL / 2);
        assert!(node.pttl("k") > i64::try_from(TTL.as_millis() / 2).unwrap());
        let ballot = no_quorum(client.try_lock("another", TTL).wait());
        assert_eq!(causes(&ballot), [Cause::OutOfMemory]);
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        assert!(!node.exists("k"));
    }
}
