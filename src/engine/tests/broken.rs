//! Rules whose breaking costs time and no lock, so that the simulation does not see it: the test that is
//! named for each fails without it.

use std::panic::catch_unwind;

use super::waking::{
    a_waiter_that_gives_up_tells_the_holder, two_that_wait_for_each_other_try_again,
};
use crate::mutant::{Kind, Mutant, run_with};

#[test]
fn each_rule_that_only_a_test_holds_fails_its_test_when_it_is_broken() {
    let tests: [(Mutant, fn()); 2] = [
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
