//! Tokens of other libraries: a client that knows the key and the token of a lock may extend and
//! release it.

use redbolt::{ExtendError, UnlockError, Unlocked};

use super::common::{Clients as _, Cluster, PATIENCE, TTL, eventually, given_away, wait_released};

const THEIRS: &[u8] = b"worker-7 \0\r\n";

#[test]
fn a_lock_of_another_library_is_adopted_extended_given_away_and_released() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    for node in cluster.nodes() {
        let reply = node.command(&[&b"SET"[..], b"k", THEIRS, b"PX", b"60000", b"NX"]);
        assert_eq!(reply, b"+OK\r\n");
    }
    let error = client.adopt("k", b"worker-8", TTL).wait().unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    assert_eq!(client.unlock_token("k", b"worker-8").wait(), Err(UnlockError::NotHeld));
    let mut adopted = client.adopt("k", THEIRS, TTL).wait().unwrap();
    assert_eq!(adopted.token().unwrap().as_bytes(), THEIRS);
    adopted.extend(TTL).wait().unwrap();
    let values =
        || cluster.values("k").into_iter().flatten().filter(|value| value == THEIRS).count();
    assert!(eventually(PATIENCE, || values() == 5));
    let (key, _) = given_away(adopted);
    assert_eq!(client.unlock_token(&key, THEIRS).wait().unwrap(), Unlocked::Released);
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
}
