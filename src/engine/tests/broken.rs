//! Rules whose breaking the simulation does not see, as it costs time and no lock, or hardly ever: the
//! test that is named for each fails without it.

use std::panic::catch_unwind;

use super::trouble::a_node_that_restarted_while_the_client_stood_still_waits_for_all_of_its_guard;
use super::waking::{
    a_waiter_that_gives_up_tells_the_holder, two_that_wait_for_each_other_try_again,
};
use crate::mutant::{Kind, Mutant, run_with};

#[test]
fn each_rule_that_only_a_test_holds_fails_its_test_when_it_is_broken() {
    let tests: [(Mutant, fn()); 3] = [
        // It needs a restart, a slow answer and a long stop at once: one seed in thousands.
        (
            Mutant::ClockReadBeforeBytes,
            a_node_that_restarted_while_the_client_stood_still_waits_for_all_of_its_guard,
        ),
        // Each finds out by a poll.
        (Mutant::RingNotBroken, two_that_wait_for_each_other_try_again),
        // Who is woken too late passes the turn on: that costs a round trip.
        (Mutant::GiveUpNotTold, a_waiter_that_gives_up_tells_the_holder),
    ];
    let rest = Mutant::ALL.iter().filter(|mutant| mutant.kind() == Kind::ByTest);
    assert!(
        rest.eq(tests.iter().map(|(mutant, _)| mutant)),
        "each has its test here, in this order"
    );
    for (mutant, test) in tests {
        assert!(catch_unwind(|| run_with(Some(mutant), test)).is_err(), "{mutant:?} survives");
    }
}
