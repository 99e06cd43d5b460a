//! The settings that one call may choose: its way of waiting.

use super::*;
use crate::retry::Retry;

/// The call tries again by its own delay, and asks no node for the holder.
#[test]
fn a_call_may_do_without_being_woken() {
    for is_woken in [true, false] {
        let mut rig = waking::rig(3);
        let retry = Retry::every(10 * MS, Duration::ZERO).timeout(TTL);
        rig.acquire_with("a", LockOptions::new(TTL).retry(retry).direct_wake(is_woken));
        rig.answer_all(0..3, "_\r\n");
        let asks = (0..3).any(|index| rig.waiting(index).contains(&"EVAL".to_owned()));
        assert_eq!(asks, is_woken);
        if !is_woken {
            rig.advance(11 * MS);
            for index in 0..3 {
                assert_eq!(rig.waiting(index).last().map(String::as_str), Some("SET"));
            }
        }
    }
}
