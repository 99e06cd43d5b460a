//! Every order of delivery and loss, for two clients and two or three nodes. Each client makes one
//! attempt at one key, or one client hands its lock to the other, or both want two keys.

#![expect(clippy::print_stdout, reason = "the number of schedules is what the test is for")]

use redbolt::sim::Mutant;
use redbolt::sim::exhaustive::{CLIENTS, Coverage, Limits, explore};

fn cover(what: &str, limits: Limits) -> Coverage {
    let coverage = explore(limits, None).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let Coverage { schedules, states, won, .. } = &coverage;
    println!("{what}: {schedules} schedules through {states} states; ends by winner: {won:?}");
    coverage
}

fn all(what: &str, limits: Limits) -> Coverage {
    let coverage = cover(what, limits);
    assert!(coverage.won[0] > 0 && coverage.won[1] > 0, "{what}: each must win in some");
    coverage
}

const NOTHING: Limits = Limits {
    nodes: 3,
    transfer: false,
    sets: false,
    lost: &[],
    timers: &[],
    releases: false,
    ttls: 0,
    depth: usize::MAX,
};

/// Goal: exclusion and cleanness do not depend on the orders that seeds happen to draw. Method: all
/// orders, with the same engine and the same model of a server.
#[test]
fn no_order_of_deliveries_makes_two_holders_or_leaves_a_key() {
    let coverage = all("deliveries", NOTHING);
    assert!(coverage.schedules > 1_000_000);
}

#[test]
fn no_order_of_deliveries_and_a_timeout_makes_two_holders_or_leaves_a_key() {
    all("with a timeout", Limits { timers: &[0], ..NOTHING });
}

#[test]
fn no_order_of_deliveries_and_releases_makes_two_holders_or_leaves_a_key() {
    all("with releases", Limits { releases: true, ..NOTHING });
}

#[test]
fn no_order_with_a_lost_connection_makes_two_holders_or_leaves_a_key() {
    all("with a loss", Limits { lost: FIRST, ..NOTHING });
}

#[test]
fn no_order_with_a_lost_connection_and_a_timeout_makes_two_holders_or_leaves_a_key() {
    all("with a loss and a timeout", Limits { nodes: 2, lost: FIRST, timers: &[0], ..NOTHING });
}

#[test]
fn no_order_with_a_lost_connection_and_releases_makes_two_holders_or_leaves_a_key() {
    all("with a loss and releases", Limits { nodes: 2, lost: FIRST, releases: true, ..NOTHING });
}

#[test]
fn no_order_in_which_locks_end_makes_two_holders_or_leaves_a_key() {
    all("with a TTL", Limits { nodes: 2, ttls: 1, ..NOTHING });
}

/// Clients and nodes are alike, so the loss of the first connection stands for the loss of any.
const FIRST: &[(usize, usize)] = &[(0, 0)];

// ---- one transfer ----

const TRANSFER: Limits = Limits { transfer: true, ..NOTHING };

/// Any connection.
const ANY: &[(usize, usize)] = &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];

fn transfers(what: &str, limits: Limits) -> Coverage {
    let coverage = cover(what, limits);
    assert!(coverage.won[0] == 0 && coverage.won[1] > 0, "{what}: the waiter must win in some");
    coverage
}

/// Goal: a release that hands its lock over makes no second holder, leaves no key and loses no
/// waiter. Method: all orders in which the scripts run. Their answers, the nodes' messages to the
/// waiter, and the waiter's next commands also arrive in every order.
#[test]
fn no_order_of_a_transfer_makes_two_holders_leaves_a_key_or_loses_the_waiter() {
    for releases in [false, true] {
        let coverage = transfers("a transfer", Limits { releases, ..TRANSFER });
        assert_eq!(coverage.won[CLIENTS], 0, "where nothing fails the transfer is the end of it");
    }
}

#[test]
fn no_order_of_a_transfer_with_a_lost_connection_makes_two_holders_or_leaves_a_key() {
    let coverage = transfers("a transfer with a loss", Limits { lost: ANY, ..TRANSFER });
    assert_eq!(coverage.won[CLIENTS], 0, "two nodes are enough");
}

/// With two nodes, each must hand the lock over. The holder wakes the waiter instead, while lost
/// commands may still run.
#[test]
fn no_order_of_a_transfer_that_fails_makes_two_holders_leaves_a_key_or_loses_the_waiter() {
    let lost = &[(0, 0), (1, 0), (1, 1)];
    let coverage = transfers("a failing transfer", Limits { nodes: 2, lost, ..TRANSFER });
    assert!(coverage.won[CLIENTS] > 0, "some waiters go on waiting");
}

/// The waiter looks at the key, or gives up the part that came, while scripts have not run.
#[test]
fn no_order_of_a_transfer_and_a_timer_of_the_waiter_makes_two_holders_or_leaves_a_key() {
    let limits = Limits { nodes: 2, timers: &[1], releases: true, ..TRANSFER };
    transfers("a transfer with a timer", limits);
}

#[test]
fn no_order_of_a_transfer_in_which_locks_end_makes_two_holders_or_leaves_a_key() {
    for releases in [false, true] {
        let limits = Limits { nodes: 2, ttls: 1, releases, ..TRANSFER };
        transfers("a transfer with a TTL", limits);
    }
}

// ---- two keys ----

/// Within this depth the calls ask, are denied, and begin to wait or to give keys back.
const SETS: Limits = Limits { nodes: 2, sets: true, releases: true, depth: 14, ..NOTHING };

/// Goal: no deadlock and no livelock. Method: all orders in which the two calls ask, are denied, wait
/// and give back; then both must get both keys.
#[test]
fn no_order_of_two_calls_for_two_keys_makes_one_wait_on_or_leaves_a_key() {
    for limits in [SETS, Limits { nodes: 3, depth: 12, ..SETS }] {
        all("two calls for two keys", limits);
    }
}

#[test]
fn calls_that_keep_the_keys_behind_the_denied_one_are_found_to_wait_for_each_other() {
    let fault = explore(SETS, Some(Mutant::KeysBehindKept)).expect_err("the rule is broken");
    assert!(fault.contains("waits on"), "{fault}");
}

/// The search can fail: it finds the fault to which each of these breakages leads.
#[test]
fn transfers_by_broken_rules_are_found() {
    const NO_GROUND: &str = "nodes hold for it";
    const LEFT: &str = "left with a key";
    const LOST: &str = "the waiter is lost";
    let lost = &[(1, 1)];
    let loss = Limits { lost, ..TRANSFER };
    let timer = Limits { nodes: 2, timers: &[1], ..TRANSFER };
    for (mutant, limits, words) in [
        (Mutant::QuorumOffByOne, TRANSFER, NO_GROUND),
        (Mutant::TransferCountsFromReceipt, Limits { nodes: 2, ttls: 1, ..TRANSFER }, NO_GROUND),
        (Mutant::DeletedTransferCounts, loss, NO_GROUND),
        (Mutant::UnheardNotOwed, loss, LEFT),
        (Mutant::DebtDropped, Limits { lost: FIRST, ..TRANSFER }, LEFT),
        // Its own leftover keeps the waiter from the lock until the leftover's TTL ends.
        (Mutant::UnwantedKept, timer, LOST),
        (Mutant::TransferNotMarked, TRANSFER, LOST),
    ] {
        let fault = explore(limits, Some(mutant)).expect_err("the rule is broken");
        println!("{mutant:?}: {}", fault.split(" after ").next().unwrap_or_default());
        assert!(fault.contains(words), "{mutant:?}: {fault}");
    }
}
