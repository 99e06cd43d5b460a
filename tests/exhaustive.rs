//! Every order of delivery and loss, for two clients, three nodes, one key and one attempt each.

#![expect(clippy::print_stdout, reason = "the number of schedules is what the test is for")]

use redbolt::sim::exhaustive::{Coverage, Limits, explore};

fn all(what: &str, limits: Limits) -> Coverage {
    let coverage = explore(limits).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let Coverage { schedules, states, won, .. } = &coverage;
    println!("{what}: {schedules} schedules through {states} states; ends by winner: {won:?}");
    assert!(won[0] > 0 && won[1] > 0, "{what}: each must win in some");
    coverage
}

const NOTHING: Limits = Limits { nodes: 3, losses: 0, timeouts: 0, releases: false, ttls: 0 };

/// Goal: exclusion and cleanness do not rest on the orders that seeds happen to draw.
/// Method: all orders, with the same engine and the same model of a server.
#[test]
fn no_order_of_deliveries_makes_two_holders_or_leaves_a_key() {
    let coverage = all("deliveries", NOTHING);
    assert!(coverage.schedules > 1_000_000);
}

#[test]
fn no_order_of_deliveries_and_a_timeout_makes_two_holders_or_leaves_a_key() {
    all("with a timeout", Limits { timeouts: 1, ..NOTHING });
}

#[test]
fn no_order_of_deliveries_and_releases_makes_two_holders_or_leaves_a_key() {
    all("with releases", Limits { releases: true, ..NOTHING });
}

#[test]
fn no_order_with_a_lost_connection_makes_two_holders_or_leaves_a_key() {
    all("with a loss", Limits { losses: 1, ..NOTHING });
}

#[test]
fn no_order_with_a_lost_connection_and_a_timeout_makes_two_holders_or_leaves_a_key() {
    all("with a loss and a timeout", Limits { nodes: 2, losses: 1, timeouts: 1, ..NOTHING });
}

#[test]
fn no_order_with_a_lost_connection_and_releases_makes_two_holders_or_leaves_a_key() {
    all("with a loss and releases", Limits { nodes: 2, losses: 1, releases: true, ..NOTHING });
}

#[test]
fn no_order_in_which_locks_end_makes_two_holders_or_leaves_a_key() {
    all("with a TTL", Limits { nodes: 2, ttls: 1, ..NOTHING });
}
