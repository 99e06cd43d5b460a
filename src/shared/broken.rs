//! Rules of the shared handle: the test that is named for each fails without it.

use std::panic::catch_unwind;

use super::rules::tests::a_lease_with_a_fence_is_not_handed_on;
use crate::rules::{Kind, Mutant, run_with};

#[test]
fn each_rule_of_the_handle_fails_its_test_when_it_is_broken() {
    let tests: [(Mutant, fn()); 1] =
        [(Mutant::FenceHandedOn, a_lease_with_a_fence_is_not_handed_on)];
    let all = Mutant::all().filter(|mutant| mutant.kind() == Kind::BySharedTest);
    assert!(
        all.eq(tests.iter().map(|&(mutant, _)| mutant)),
        "each has its test here, in this order"
    );
    for (mutant, test) in tests {
        assert!(catch_unwind(|| run_with(Some(mutant), test)).is_err(), "{mutant:?} survives");
    }
}
