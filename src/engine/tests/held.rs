//! A question to a holder: what counts as its answer, and when the asker stops waiting for one.

use super::waking::{message_for, own_waiter, rig};
use super::*;

/// A holder's answer to a question.
const ANSWER: char = '\u{6}';

const TOKEN: [u8; 20] = *b"ABCDEFGH------------";

/// The question is put to three nodes, and each answers how many received it.
fn asked(receivers: &str) -> Rig {
    let mut rig = rig(3);
    rig.engine.ask_holder(b"a", &TOKEN, rig.now).unwrap();
    rig.answer_all(0..3, receivers);
    rig
}

/// What is known once the question has ended; `None` while it has not.
fn ended(rig: &mut Rig) -> Option<Option<(Duration, u32)>> {
    let event = rig.engine.poll_event(rig.now)?;
    let Event::Query { replies, .. } = event else { panic!("{event:?}") };
    let heard = replies.into_iter().find_map(|answers| answers.heard);
    Some(heard.map(|heard| (heard.held_for, heard.waiters)))
}

fn answer(rig: &mut Rig, number: u32) {
    let to = own_waiter(rig, number);
    let bytes = message_for(rig, &to, ANSWER, b"ABCDEFGH", &[]);
    rig.receive(1, &bytes);
}

#[test]
fn the_answer_under_the_drawn_number_ends_the_question() {
    let mut rig = asked(":1\r\n");
    assert_eq!(ended(&mut rig), None, "a holder has received it");
    let (number, _) = rig.engine.locks.asked[0];
    answer(&mut rig, number.wrapping_add(1));
    assert_eq!(ended(&mut rig), None, "it is the answer to no question of this client");
    answer(&mut rig, number);
    // As `message_for` writes the time.
    assert_eq!(ended(&mut rig), Some(Some((Duration::from_millis(64 << 8), 0))));
    answer(&mut rig, number);
    assert_eq!(ended(&mut rig), None);
}

#[test]
fn a_question_that_nobody_received_ends_at_once() {
    assert_eq!(ended(&mut asked(":0\r\n")), Some(None));
}

#[test]
fn a_holder_that_does_not_answer_is_waited_for_until_the_node_timeout() {
    let mut rig = asked(":1\r\n");
    rig.advance(25 * MS);
    assert_eq!(ended(&mut rig), None);
    rig.advance(50 * MS);
    assert_eq!(ended(&mut rig), Some(None));
}
