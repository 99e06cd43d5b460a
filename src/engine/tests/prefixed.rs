//! The prefix of the keys: on the wire, and nowhere else.

use super::*;

fn prefixed(prefix: &str) -> Rig {
    Rig::with(3, |config| config.key_prefix(prefix))
}

fn key_sent(rig: &mut Rig, index: usize) -> String {
    rig.collect();
    rig.inbox[index][0][1].clone()
}

#[test]
fn nodes_have_the_key_with_its_prefix_and_callers_without() {
    let mut rig = prefixed("app:");
    rig.acquire("a");
    assert_eq!(key_sent(&mut rig, 0), "app:a");
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    let (key, token) = rig.engine.lease_name(lease).unwrap();
    assert_eq!(key, b"a");
    let token = token.to_string();
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(key_sent(&mut rig, 1), "app:a");
    rig.answer_all(0..3, "+OK\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(key_sent(&mut rig, 2), "app:a");
    rig.answer_all(0..3, ":1\r\n");
    rig.engine.poll_event(rig.now).unwrap();

    rig.engine.unlock_token(b"a", token.as_bytes(), rig.now).unwrap();
    assert_eq!(key_sent(&mut rig, 0), "app:a");
    rig.answer_all(0..3, ":0\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    rig.engine.adopt(b"a", token.as_bytes(), &LockOptions::new(TTL), rig.now).unwrap();
    assert_eq!(key_sent(&mut rig, 0), "app:a");
}

#[test]
fn key_and_prefix_together_have_4096_bytes_at_most() {
    let mut rig = prefixed("app:");
    let (now, acquire) = (rig.now, LockOptions::new(TTL));
    let engine = &mut rig.engine;
    let most = [b'k'; 4092];
    assert!(engine.acquire(&most, &acquire, now).is_ok());
    assert!(engine.unlock_token(&most, b"t", now).is_ok());
    let over = [b'k'; 4093];
    let error = engine.acquire(&over, &acquire, now).unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { len: 4097 }), "{error}");
    assert!(engine.unlock_token(&over, b"t", now).is_err());
    assert!(engine.adopt(&over, b"t", &acquire, now).is_err());
    let error = engine.acquire(b"", &acquire, now).unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { len: 0 }), "{error}");
    assert!(engine.unlock_token(b"", b"t", now).is_err());
}

/// Short keys are kept in place, long ones elsewhere: a prefix may make a short key long.
#[test]
fn keys_of_every_length_come_back_as_they_went_in() {
    let mut rig = prefixed("prefix:");
    for len in (1..=80).chain([4089, 3, 40]) {
        let key = "k".repeat(len);
        let lease = rig.lease(&key);
        assert_eq!(rig.engine.lease_name(lease).unwrap().0, key.as_bytes());
        rig.engine.unlock(lease, rig.now).unwrap();
        assert_eq!(key_sent(&mut rig, 0), format!("prefix:{key}"));
        rig.answer_all(0..3, ":1\r\n");
        rig.engine.poll_event(rig.now).unwrap();
    }
}
