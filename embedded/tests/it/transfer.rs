//! The script that hands a lock over, beside `scripts`: the messages that others get, and their
//! order.

use redbolt_embedded::model::Condition;
use redbolt_rig::{RealServer, available_kinds};

use super::pair::{Pair, TRANSFER, words};

/// Takes the lock `k`, hands it over with these arguments, and looks at the key.
fn hand_over(pair: &mut Pair, args: &str) {
    let transfer = format!("EVAL TRANSFER {args}");
    pair.say(&["DEL k", "SET k mine PX 90000", &transfer, "GET k", "PTTL k"]);
}

/// The client's own message comes before or behind the answer.
#[test]
fn a_client_that_hands_a_lock_over_to_itself_hears_of_it_as_on_real_servers() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let mut pair = Pair::new(&server);
        let transfer = ["EVAL", TRANSFER, "1", "k", "mine", "next", "60000", "c", "m"];
        pair.run(1, &[words(&["SUBSCRIBE", "c"])]);
        pair.say(&["HELLO 3", "SUBSCRIBE c"]);
        hand_over(&mut pair, "1 k mine next 60000 c m");
        hand_over(&mut pair, "1 k mine next 0 c m");
        pair.run(0, &[words(&["PING"]), words(&["SET", "k", "mine"]), words(&transfer)]);
        pair.run(0, &[words(&transfer), words(&["PING"])]);
    }
}

/// The waiter gets no message.
#[test]
fn a_lock_that_the_user_may_not_delete_stays_with_its_holder() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let mut pair = Pair::new(&server);
        pair.say(&["SET k mine"]);
        for line in [&["HELLO", "3"][..], &["SUBSCRIBE", "c"]] {
            pair.run(1, &[words(line)]);
        }
        server.command(&["ACL", "SETUSER", "default", "-del"]);
        pair.set_condition(Condition::Denied(vec!["del".to_owned()]));
        pair.say(&["EVAL TRANSFER 1 k mine next 60000 c m", "GET k", "PTTL k"]);
        pair.run(1, &[words(&["PING"])]);
        let transfer = ["EVAL", TRANSFER, "1", "k", "mine", "next", "60000", "c", "m"];
        assert!(server.command(&transfer).starts_with(b"-ERR "), "{}", kind.name());
        assert_eq!(server.command(&["GET", "k"]), b"$4\r\nmine\r\n", "{}", kind.name());
    }
}
