//! How a lock changes hands where no fault happens and only the network takes time: the figures
//! that PERF.md measures, without its noise. Each client wants the lock again as soon as its unlock
//! is answered, or at once.

use redbolt::sim::hands::{Contest, Figures};

/// Clients that hand the lock over, and wait for the end of their releases.
const fn among(clients: usize) -> Contest {
    Contest {
        clients,
        round_trip_us: 1_000,
        jitter: 2,
        transfers_in_row: 16,
        held_us: 100,
        awaits_release: true,
        turns: 1280,
        slots: 0,
        has_writer: false,
    }
}

/// Clients that drop their guards and want the lock again meanwhile.
const fn among_dropping(clients: usize) -> Contest {
    Contest { awaits_release: false, ..among(clients) }
}

const fn among_woken(clients: usize) -> Contest {
    Contest { transfers_in_row: 0, ..among(clients) }
}

/// Plays the contest over each network: the round trip in microseconds and its jitter in
/// hundredths.
fn each(contest: Contest, networks: &[(u64, u64)], check: impl Fn(&Figures) -> bool) {
    for &(round_trip_us, jitter) in networks {
        let contest = Contest { round_trip_us, jitter, ..contest };
        let figures = contest.play();
        assert!(check(&figures), "{contest:?}: {figures:?}");
    }
}

/// At most this many round trips and commands; the least served client has at least this part of
/// the mean.
fn within(hand_over: f64, commands: f64, least: f64) -> impl Fn(&Figures) -> bool {
    move |figures| {
        figures.hand_over <= hand_over
            && figures.commands_per_turn <= commands
            && figures.least_served >= least
    }
}

const STEADY: [(u64, u64); 4] = [(100, 2), (1_000, 2), (10_000, 2), (30_000, 2)];

/// A hand-over waits for the slowest of three nodes' ways, so it takes a little more.
const UNSTEADY: [(u64, u64); 4] = [(100, 30), (1_000, 30), (10_000, 30), (30_000, 30)];

/// A turn takes five scripts and one announcement. In each 17th turn the lock is free.
#[test]
fn among_eight_a_lock_changes_hands_in_one_round_trip_and_seven_commands_and_all_have_their_turns()
{
    for contest in [among(8), among_dropping(8)] {
        each(contest, &STEADY, within(1.05, 7.5, 0.95));
        each(contest, &UNSTEADY, within(1.2, 7.5, 0.95));
    }
}

/// A client that drops a guard and wants the lock again writes its next attempt behind the release.
/// It would win each time if it did not remember the clients that wait meanwhile.
#[test]
fn among_few_callers_that_drop_their_guards_a_lock_changes_hands_in_one_round_trip_and_all_have_their_turns()
 {
    for contest in [among_dropping(2), among_dropping(3)] {
        // With fewer turns, the share of the least served client is a matter of chance.
        let contest = Contest { turns: 1920, ..contest };
        each(contest, &STEADY, within(1.05, 7.5, 0.95));
        each(contest, &UNSTEADY, within(1.2, 8.0, 0.95));
    }
}

/// A client that waits for the end of its release is back just in time to be the next but one.
#[test]
fn among_three_most_changes_of_hands_take_one_round_trip() {
    each(among(3), &STEADY, within(1.05, 8.5, 0.95));
    each(among(3), &STEADY[1..], |figures| figures.turn <= 1.6);
}

#[test]
fn among_sixty_four_nobody_asks_for_what_comes_by_itself() {
    each(among(64), &[(100, 30), (1_000, 2), (1_000, 30)], within(1.2, 8.0, 0.9));
}

#[test]
fn among_woken_waiters_a_lock_changes_hands_in_two_round_trips_and_twelve_commands() {
    each(among_woken(2), &[(100, 30), (1_000, 2), (10_000, 30)], within(2.4, 12.5, 0.95));
    each(among_woken(8), &[(100, 2), (100, 30), (1_000, 2), (1_000, 30)], within(2.4, 12.5, 0.95));
}

/// A client that waits for the end of its release wants the lock again a round trip later. If that
/// is before the other client lets go, the other hears of it in time.
#[test]
fn between_two_a_lock_changes_hands_in_one_round_trip_where_it_is_held_for_longer_than_two() {
    for round_trip_us in [100, 1_000, 10_000, 30_000] {
        let held_us = round_trip_us * 5 / 2;
        let contest = Contest { round_trip_us, held_us, ..among(2) };
        let figures = contest.play();
        let is_as_promised = figures.hand_over <= 1.05 && figures.least_served >= 0.95;
        assert!(is_as_promised, "{contest:?}: {figures:?}");
    }
}

/// If the lock is held for less, the other client knows of no waiter when it lets go: every second
/// turn needs a wake.
#[test]
fn between_two_callers_that_wait_for_the_end_of_their_releases_a_turn_takes_two_round_trips_and_nine_commands()
 {
    each(among(2), &STEADY[1..], |figures| {
        figures.turn <= 2.1 && figures.commands_per_turn <= 9.5 && figures.least_served >= 0.95
    });
}

/// Callers that hold a slot for two round trips each.
const fn among_slots(clients: usize, slots: usize) -> Contest {
    Contest { slots, held_us: 2_000, ..among_dropping(clients) }
}

/// At the ideal rate a slot is handed over in one round trip, so its turn takes three.
#[test]
fn eight_callers_keep_three_slots_busy_and_all_have_their_turns() {
    let contest = Contest { turns: 3840, ..among_slots(8, 3) };
    each(contest, &[(1_000, 2)], |it| it.turn <= 1.0 / 0.98 && it.least_served >= 0.9);
    each(contest, &[(1_000, 30)], |it| it.turn <= 1.0 / 0.93 && it.least_served >= 0.9);
}

#[test]
fn a_writer_waits_for_few_round_trips_and_the_readers_keep_nine_tenths_of_their_rate() {
    for (readers, slots, turns) in [(16, 16, 6400), (64, 63, 9600)] {
        let readers = Contest { turns, ..among_slots(readers, slots) };
        let (alone, beside) = (readers.play(), Contest { has_writer: true, ..readers }.play());
        let waits = &beside.writer_waits;
        let is_soon =
            waits.len() > 7 && waits[waits.len() / 2] <= 5.5 && waits[waits.len() - 1] <= 10.0;
        assert!(is_soon, "{waits:?}");
        assert!(alone.turn / beside.turn >= 0.9, "{alone:?} {beside:?}");
    }
}
