//! The script by which a waiter asks who has a lock and has that client told: its answers, and what the
//! other hears.

use redbolt_embedded::model::Condition;
use redbolt_rig::{RealServer, available_kinds};

use super::pair::{Pair, words};

/// A token as Redbolt's clients draw them: its client's id comes first.
const TOKEN: &str = "00ff0d0a24e1c26a0123456789abcdef01234567";
const OTHERS: [&str; 6] = [
    "",
    "mine",
    // Capital letters, a letter that is no digit, a digit too few and one too many.
    "00FF0D0A24E1C26A0123456789ABCDEF01234567",
    "00ff0d0a24e1c26g0123456789abcdef01234567",
    "00ff0d0a24e1c26a0123456789abcdef0123456",
    "00ff0d0a24e1c26a0123456789abcdef012345678",
];

#[test]
fn a_node_says_who_has_a_lock_and_tells_that_client() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let mut pair = Pair::new(&server);
        for version in ["2", "3"] {
            pair.run(1, &[words(&["RESET"]), words(&["HELLO", version])]);
            // The time that is left is compared where there is none.
            pair.say(&["DEL k", "EVAL INTRODUCE 1 k own c: before behind"]);
            pair.say(&[&format!("SET k {TOKEN}"), "EVAL INTRODUCE 1 k own c: before behind"]);
            pair.run(1, &[words(&["SUBSCRIBE", "c:00ff0d0a24e1c26a"])]);
            pair.say(&["EVAL INTRODUCE 1 k own c: before behind"]);
            pair.say(&["EVAL INTRODUCE 1 k own d: before behind"]);
            pair.say(&[&format!("EVAL INTRODUCE 1 k {TOKEN} c: before behind")]);
            for token in OTHERS {
                pair.run(0, &[words(&["SET", "k", token])]);
                pair.say(&["EVAL INTRODUCE 1 k own c: before behind"]);
            }
            pair.say(&["DEL list", "RPUSH list a", "EVAL INTRODUCE 1 list own c: before behind"]);
            // Too few arguments that are not used, and too many.
            pair.say(&["SET k mine", "EVAL INTRODUCE 1 k own", "EVAL INTRODUCE 1 k own c: b"]);
            pair.say(&["EVAL INTRODUCE 1 k own c: before behind more"]);
        }
    }
}

#[test]
fn a_waiter_learns_as_much_as_the_user_may_ask() {
    for kind in available_kinds() {
        for denied in ["publish", "pttl"] {
            let server = RealServer::start(kind, &[]);
            let mut pair = Pair::new(&server);
            pair.run(1, &[words(&["SUBSCRIBE", "c:00ff0d0a24e1c26a"])]);
            pair.say(&[&format!("SET k {TOKEN}")]);
            server.command(&["ACL", "SETUSER", "default", &format!("-{denied}")]);
            pair.set_condition(Condition::Denied(vec![denied.to_owned()]));
            pair.say(&["EVAL INTRODUCE 1 k own c: before behind"]);
            server.command(&["ACL", "SETUSER", "default", &format!("+{denied}")]);
            pair.set_condition(Condition::Denied(Vec::new()));
        }
    }
}
