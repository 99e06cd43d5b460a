//! The table of a waiter's states: every input in every state.

use super::super::list::Entry;
use super::super::state::Question;
use super::*;

const STATES: [&str; 13] = [
    "trying",
    "introducing",
    "receiving",
    "pausing",
    "failed",
    "introduction",
    "holder",
    "look",
    "announcement",
    "place",
    "poll",
    "listening",
    "looking",
];

const ALL_BUT_TRYING: &[&str] = STATES.split_at(2).1;
const WITHOUT_A_PART: &[&str] = STATES.split_at(3).1;

/// Trying, but for what is on its way: while an attempt is, the call introduces itself.
fn state_of(name: &'static str) -> &'static str {
    if name == "introducing" { "trying" } else { name }
}

fn name(state: State) -> &'static str {
    match state {
        State::Trying => "trying",
        State::Pausing => "pausing",
        State::Failed => "failed",
        State::Asking(Question::Introduction) => "introduction",
        State::Asking(Question::Holder) => "holder",
        State::Asking(Question::Look) => "look",
        State::Asking(Question::Announcement) => "announcement",
        State::Asking(Question::Place { .. }) => "place",
        State::Asking(Question::Poll) => "poll",
        State::Still(Still::Listening) => "listening",
        State::Still(Still::Looking) => "looking",
        State::Receiving => "receiving",
    }
}

/// A world with a call in this state.
pub(super) fn world(state: &'static str) -> World {
    let mut world = World::new();
    match state {
        "trying" => {
            world.deny(0);
            world.answer(0, Answer::Gone);
        }
        "pausing" => {
            for _ in 0..3 {
                world.deny(0);
                world.answer(0, Answer::Gone);
            }
        }
        "receiving" => {
            world.deny(0);
            world.step(0, Input::Transferred { list: List::default(), row: None });
        }
        "failed" => {
            world.deny(0);
            world.answer(0, Answer::Gone);
            world.step(0, Input::Failed);
        }
        "introducing" => world.introduce(0),
        "introduction" => {
            world.run_scripts();
            world.deny(0);
        }
        "holder" => world.deny(0),
        "look" | "looking" => {
            world.deny(0);
            world.answer(0, Answer::Holder(None));
            world.answer(0, Answer::Remaining(Some(9_000)));
            if state == "looking" {
                world.answer(0, Answer::Remaining(Some(9_000)));
            }
        }
        "announcement" => {
            world.deny(0);
            world.answer(0, Answer::Holder(Some(token(OTHER))));
            world.answer(0, Answer::Remaining(Some(9_000)));
        }
        "place" => {
            world.release(0, &[OTHER]);
            world.tell(|waiting, view| assert!(waiting.queue_behind(op(0), call(), view)));
        }
        "poll" | "listening" => {
            world.listen(0, OTHER);
            if state == "poll" {
                world.now = world.due(0);
                world.step(0, Input::Due);
            }
        }
        other => panic!("{other}"),
    }
    assert_eq!(name(world.state(0)), state_of(state));
    world
}

const INPUTS: [&str; 26] = [
    "begun",
    "denied",
    "failed",
    "retry",
    "behind",
    "turn",
    "follower",
    "gone",
    "same holder",
    "another holder",
    "unknown holder",
    "remaining",
    "introduced",
    "introduced in vain",
    "introduced to nobody",
    "refused",
    "heard",
    "unheard",
    "unwritten",
    "unanswered",
    "due",
    "ended",
    "changed",
    "untracked",
    "transferred in part",
    "transferred",
];

fn input(name: &str, world: &mut World) -> Input {
    let answer = Input::Answer;
    match name {
        "begun" => Input::Begun,
        "denied" => Input::Denied(world.reach.all),
        "failed" => Input::Failed,
        "retry" => Input::Retry,
        "behind" => {
            let to = Entry {
                id: OTHER,
                until: Instant::MAX,
                since: Instant::default(),
                not_before: Instant::default(),
                node: node(0),
                seen: Instant::MAX,
                offer: None,
            };
            let (key, rest) = (Key::from_slice(KEY), List::default());
            let wake = Wake { key, to, rest, fence: 0, tried: NodeMask::EMPTY, is_turn: true };
            Input::Behind(wake.successor(node(0), Instant::MAX))
        }
        "turn" => Input::Turn(List::default()),
        "follower" => Input::Follower(ClientId::of(&OTHER)),
        "gone" => answer(Answer::Gone),
        "same holder" => answer(Answer::Holder(Some(token(OTHER)))),
        "another holder" => answer(Answer::Holder(Some(token(THIRD)))),
        "unknown holder" => answer(Answer::Holder(None)),
        "remaining" => answer(Answer::Remaining(None)),
        "introduced" => answer(introduced(Some(token(OTHER)), true)),
        "introduced in vain" => answer(introduced(Some(token(OTHER)), false)),
        "introduced to nobody" => answer(introduced(None, false)),
        "refused" => answer(Answer::Refused),
        "heard" => answer(Answer::Heard(true)),
        "unheard" => answer(Answer::Heard(false)),
        "unwritten" => Input::Unwritten,
        "unanswered" => Input::Unanswered,
        "due" => {
            world.now = world.now.max(world.due(0)).min(world.now + 1_000 * MS);
            Input::Due
        }
        "ended" => {
            world.now = world.now + 10_000 * MS;
            Input::Due
        }
        "changed" => Input::Changed(node(0)),
        "transferred in part" => Input::Transferred { list: List::default(), row: None },
        "transferred" => Input::Transferred { list: List::default(), row: Some(1) },
        "untracked" => {
            let waiter = world.waiting.waiters.get(op(0)).unwrap();
            Input::Untracked(waiter.tracked.first_node().unwrap_or_else(|| node(0)))
        }
        other => panic!("{other}"),
    }
}

fn introduced(holder: Option<RawToken>, is_heard: bool) -> Answer {
    Answer::Introduced { holder, remaining: Some(9_000), is_heard }
}

/// The table: for states and inputs, the next state and the actions. Where nothing is listed there
/// are no actions, and the state stays.
#[expect(clippy::type_complexity, reason = "it is a table")]
const TABLE: &[(&[&str], &[&str], &str, &[&str])] = &[
    (&["introducing"], &["begun"], "trying", &["timer", "introduce"]),
    (&["introducing"], &["denied"], "introduction", &["timer"]),
    (&["introducing"], &["behind"], "place", &["timer", "announce"]),
    (&["introducing"], &["gone"], "trying", &["withdraw"]),
    (&["introduction"], &["denied"], "introduction", &["timer", "introduce"]),
    (&["introduction"], &["gone"], "trying", &["try at one"]),
    (&["introduction"], &["introduced"], "listening", &["listen"]),
    (&["introduction"], &["introduced to nobody"], "look", &["timer", "look"]),
    (&["introduction"], &["refused"], "holder", &["timer", "ask"]),
    (
        &["introduction"],
        &["introduced in vain", "unwritten", "unanswered", "due", "ended"],
        "introduction",
        &["timer", "introduce"],
    ),
    (&STATES, &["denied"], "holder", &["timer", "ask"]),
    (&STATES, &["failed"], "failed", &[]),
    (&["failed"], &["retry"], "trying", &["try"]),
    (&["trying"], &["behind"], "place", &["timer", "announce"]),
    (ALL_BUT_TRYING, &["turn"], "trying", &["try"]),
    (&STATES, &["transferred"], "trying", &[]),
    (WITHOUT_A_PART, &["transferred in part"], "receiving", &["timer"]),
    (&["receiving"], &["due", "ended"], "trying", &["try"]),
    (&["announcement", "place", "poll", "listening"], &["follower"], "trying", &["try at one"]),
    (&["holder", "look", "announcement"], &["gone"], "trying", &["try at one"]),
    (&["holder"], &["remaining"], "look", &["timer", "look"]),
    (&["look"], &["remaining", "unwritten"], "looking", &["timer"]),
    (&["announcement"], &["same holder"], "holder", &["timer", "ask"]),
    (&["announcement", "poll"], &["another holder"], "announcement", &["timer", "announce"]),
    (&["announcement", "poll"], &["unknown holder"], "look", &["timer", "look"]),
    (&["poll"], &["same holder", "gone"], "listening", &["listen"]),
    (&["place"], &["heard"], "listening", &["listen"]),
    (&["place"], &["unheard", "unwritten", "due", "ended"], "trying", &["try"]),
    (&["poll"], &["unwritten"], "trying", &["try"]),
    (&["holder", "announcement"], &["unwritten"], "holder", &["timer", "ask"]),
    (
        &["holder", "look", "announcement", "poll"],
        &["unanswered", "due", "ended"],
        "holder",
        &["timer", "ask"],
    ),
    (&["place"], &["unanswered"], "holder", &["timer", "ask"]),
    (&["pausing"], &["due", "ended"], "trying", &["try at one"]),
    (&["listening", "looking"], &["ended"], "trying", &["try at one"]),
    (&["listening"], &["due"], "poll", &["timer", "poll"]),
    (&["looking"], &["due"], "look", &["timer", "look"]),
    (&["looking"], &["changed", "untracked"], "looking", &["timer"]),
];

#[test]
fn each_input_in_each_state_does_what_the_table_says() {
    for from in STATES {
        for with in INPUTS {
            let is_row = |row: &&(&[&str], &[&str], &str, &[&str])| {
                row.0.contains(&from) && row.1.contains(&with)
            };
            let (next, wanted) = TABLE
                .iter()
                .find(is_row)
                .map_or_else(|| (state_of(from), &[][..]), |row| (row.2, row.3));
            let mut world = world(from);
            let input = input(with, &mut world);
            world.step(0, input);
            assert_eq!((name(world.state(0)), &world.done()[..]), (next, wanted), "{from}, {with}");
        }
    }
}

#[test]
fn a_call_has_a_timer_wherever_no_attempt_is_under_way() {
    for state in STATES {
        let is_idle = !["trying", "failed"].contains(&state);
        assert_eq!(world(state).due(0) < Instant::MAX, is_idle, "{state}");
    }
}

#[test]
fn nothing_changes_a_call_that_is_over() {
    for from in STATES {
        for with in INPUTS {
            let mut world = world(from);
            let input = input(with, &mut world);
            world.waiting.over(op(0));
            world.step(0, input);
            assert_eq!(world.waiting.waiters.get(op(0)).unwrap().state, None, "{from}, {with}");
            assert_eq!(world.done(), Vec::<&str>::new(), "{from}, {with}");
        }
    }
}
