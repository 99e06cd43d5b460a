//! How a lock changes hands where nothing goes wrong and only the network takes time: what PERF.md
//! measures, without its noise. Each client wants the lock again as soon as its unlock is answered.

use redbolt::sim::hands::{Contest, Figures};

const WOKEN: u8 = 0;
const HANDED_OVER: u8 = 16;

/// Contests by the round trip in microseconds and its jitter in hundredths.
fn each(
    clients: usize,
    transfers_in_row: u8,
    networks: &[(u64, u64)],
    check: impl Fn(Figures) -> bool,
) {
    for &(round_trip_us, jitter) in networks {
        let (held_us, turns) = (100, 1280);
        let contest = Contest { clients, round_trip_us, jitter, transfers_in_row, held_us, turns };
        let figures = contest.play();
        assert!(check(figures), "{contest:?}: {figures:?}");
    }
}

/// Five scripts and one announcement, but for each 17th turn, in which the lock is free.
#[test]
fn among_eight_a_lock_changes_hands_in_one_round_trip_and_seven_commands_and_all_have_their_turns()
{
    each(8, HANDED_OVER, &[(100, 2), (1_000, 2), (10_000, 2), (30_000, 2)], |figures| {
        figures.hand_over <= 1.05
            && figures.commands_per_turn <= 7.5
            && figures.least_served >= 0.95
    });
    each(8, HANDED_OVER, &[(1_000, 30), (10_000, 30), (30_000, 30)], |figures| {
        figures.hand_over <= 1.2 && figures.commands_per_turn <= 7.5 && figures.least_served >= 0.95
    });
}

/// Who has let go is back just in time to be the next but one.
#[test]
fn among_three_most_changes_of_hands_take_one_round_trip() {
    each(3, HANDED_OVER, &[(100, 2), (1_000, 2), (10_000, 2), (1_000, 30)], |figures| {
        figures.hand_over <= 1.2 && figures.commands_per_turn <= 9.0 && figures.least_served >= 0.9
    });
    each(3, HANDED_OVER, &[(1_000, 2), (10_000, 2)], |figures| figures.turn <= 1.6);
}

#[test]
fn among_sixty_four_nobody_asks_for_what_comes_by_itself() {
    each(64, HANDED_OVER, &[(100, 30), (1_000, 2), (1_000, 30)], |figures| {
        figures.hand_over <= 1.2 && figures.commands_per_turn <= 8.0 && figures.least_served >= 0.9
    });
}

#[test]
fn among_those_who_are_woken_a_lock_changes_hands_in_two_round_trips_and_twelve_commands() {
    each(2, WOKEN, &[(100, 30), (1_000, 2), (10_000, 30)], |figures| {
        figures.hand_over <= 2.4
            && figures.commands_per_turn <= 12.5
            && figures.least_served >= 0.95
    });
    each(8, WOKEN, &[(100, 2), (100, 30), (1_000, 2), (1_000, 30)], |figures| {
        figures.hand_over <= 2.4
            && figures.commands_per_turn <= 12.5
            && figures.least_served >= 0.95
    });
}

/// Who has let go wants the lock again a round trip later, when its unlock is answered: where that is
/// sooner than the other lets go, the other hears of it in time.
#[test]
fn between_two_a_lock_changes_hands_in_one_round_trip_where_it_is_held_for_longer_than_two() {
    for round_trip_us in [100, 1_000, 10_000, 30_000] {
        let held_us = round_trip_us * 5 / 2;
        let (transfers_in_row, turns) = (HANDED_OVER, 1280);
        let contest =
            Contest { clients: 2, round_trip_us, jitter: 2, transfers_in_row, held_us, turns };
        let figures = contest.play();
        let is_as_promised = figures.hand_over <= 1.05 && figures.least_served >= 0.95;
        assert!(is_as_promised, "{contest:?}: {figures:?}");
    }
}
