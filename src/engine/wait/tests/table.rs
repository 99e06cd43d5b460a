//! The table of a waiter's states: every input in every state.

use smallvec::SmallVec;

use super::super::outside::Successor;
use super::super::waiter::Question;
use super::*;

const STATES: [&str; 10] = [
    "trying",
    "introducing",
    "receiving",
    "pausing",
    "failed",
    "introduction",
    "place",
    "poll",
    "still",
    "unheard",
];

const ALL_BUT_TRYING: &[&str] = STATES.split_at(2).1;
const WITHOUT_A_PART: &[&str] = STATES.split_at(3).1;

/// The machine's state for a name of `STATES`. "introducing" means the state "trying" with an
/// introduction under way. "unheard" means the state "still" where no holder heard of the call.
fn state_of(name: &'static str) -> &'static str {
    match name {
        "introducing" => "trying",
        "unheard" => "still",
        other => other,
    }
}

fn name(state: WaitState) -> &'static str {
    match state {
        WaitState::Trying => "trying",
        WaitState::Pausing => "pausing",
        WaitState::Failed => "failed",
        WaitState::Asking(Question::Introduction) => "introduction",
        WaitState::Asking(Question::Place { .. }) => "place",
        WaitState::Asking(Question::Poll) => "poll",
        WaitState::Still => "still",
        WaitState::Receiving => "receiving",
    }
}

/// A world with a call in this state.
pub(super) fn world(state: &'static str) -> World {
    let mut world = World::new();
    match state {
        "trying" => {
            world.deny(0);
            world.answer(0, HolderAnswer::Gone);
        }
        "pausing" => {
            for _ in 0..3 {
                world.deny(0);
                world.answer(0, HolderAnswer::Gone);
            }
        }
        "receiving" => {
            world.deny(0);
            world.step(0, Input::Transferred { list: Waitlist::default(), row: None });
        }
        "failed" => {
            world.deny(0);
            world.answer(0, HolderAnswer::Gone);
            world.step(0, Input::Failed);
        }
        "introducing" => world.introduce(0),
        "introduction" => world.deny(0),
        "unheard" => {
            world.deny(0);
            world.answer(0, introduced(None, false));
        }
        "place" => {
            world.release(0, &[OTHER]);
            world.tell(|waiting, view| assert!(waiting.queue_behind(op(0), call(), view)));
        }
        "poll" | "still" => {
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

const INPUTS: [&str; 23] = [
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
        "behind" => Input::Behind(Successor {
            id: OTHER,
            node: node(0),
            is_turn: true,
            is_handed: false,
            behind: SmallVec::new(),
            until: Instant::MAX,
        }),
        "turn" => Input::Turn(Waitlist::default()),
        "follower" => Input::Follower(ClientId::of(&OTHER)),
        "gone" => answer(HolderAnswer::Gone),
        "same holder" => answer(HolderAnswer::Holder(Some(token(OTHER)))),
        "another holder" => answer(HolderAnswer::Holder(Some(token(THIRD)))),
        "unknown holder" => answer(HolderAnswer::Holder(None)),
        "introduced" => answer(introduced(Some(token(OTHER)), true)),
        "introduced in vain" => answer(introduced(Some(token(OTHER)), false)),
        "introduced to nobody" => answer(introduced(None, false)),
        "refused" => answer(HolderAnswer::Refused),
        "heard" => answer(HolderAnswer::Heard(true)),
        "unheard" => answer(HolderAnswer::Heard(false)),
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
        "transferred in part" => Input::Transferred { list: Waitlist::default(), row: None },
        "transferred" => Input::Transferred { list: Waitlist::default(), row: Some(1) },
        other => panic!("{other}"),
    }
}

/// The table: for states and inputs, the next state and the actions. Where nothing is listed there
/// are no actions, and the state stays.
#[expect(clippy::type_complexity, reason = "it is a table")]
const TABLE: &[(&[&str], &[&str], &str, &[&str])] = &[
    (&["introducing"], &["begun"], "trying", &["timer", "introduce"]),
    (&["introducing"], &["denied"], "introduction", &["timer"]),
    (&["introducing"], &["gone"], "trying", &["withdraw"]),
    (&STATES, &["denied"], "introduction", &["timer", "introduce"]),
    (&["introduction"], &["gone"], "trying", &["try at one"]),
    (&["introduction"], &["introduced"], "still", &["listen"]),
    (&["introduction"], &["introduced to nobody"], "still", &["timer"]),
    (
        &["introduction"],
        &["introduced in vain", "refused"],
        "introduction",
        &["timer", "introduce"],
    ),
    (
        &["introduction", "poll"],
        &["unwritten", "unanswered", "due", "ended"],
        "introduction",
        &["timer", "introduce"],
    ),
    (&STATES, &["failed"], "failed", &[]),
    (&["failed"], &["retry"], "trying", &["try"]),
    (&["trying", "introducing"], &["begun"], "trying", &["timer", "introduce"]),
    (&["trying", "introducing"], &["behind"], "place", &["timer", "announce"]),
    (ALL_BUT_TRYING, &["turn"], "trying", &["try"]),
    (&STATES, &["transferred"], "trying", &[]),
    (WITHOUT_A_PART, &["transferred in part"], "receiving", &["timer"]),
    (&["receiving"], &["due", "ended"], "trying", &["try"]),
    (&["place", "poll", "still"], &["follower"], "trying", &["try at one"]),
    (&["poll"], &["same holder", "gone"], "still", &["listen"]),
    (&["poll"], &["another holder"], "introduction", &["timer", "introduce"]),
    (&["poll"], &["unknown holder"], "still", &["timer"]),
    (&["place"], &["heard"], "still", &["listen"]),
    (&["place"], &["unheard", "unwritten", "unanswered", "due", "ended"], "trying", &["try"]),
    (&["pausing"], &["due", "ended"], "trying", &["try at one"]),
    (&["still", "unheard"], &["ended"], "trying", &["try at one"]),
    (&["still", "unheard"], &["due"], "poll", &["timer", "poll"]),
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
