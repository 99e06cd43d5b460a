//! Each rule of the client, with the test that fails when the rule is broken.

use std::panic::catch_unwind;

use super::lingering::{
    a_call_that_wants_more_than_is_left_goes_behind_the_release,
    a_lock_is_taken_again_as_often_as_the_configuration_allows,
    a_lock_that_another_client_wants_does_not_begin_to_linger,
    a_lock_that_is_lost_while_it_lingers_is_not_taken_again,
    a_lock_that_lingers_is_released_at_the_end_of_its_client,
    a_lock_that_was_extended_by_another_ttl_does_not_linger,
    a_lock_whose_time_to_linger_is_over_is_not_taken_again,
};
use super::policy::tests::{
    a_lease_of_a_leader_is_not_handed_on, a_lease_with_a_fence_is_not_handed_on,
};
use super::schedules::{
    a_call_does_not_wait_for_the_end_of_another,
    a_lease_of_which_the_next_holder_wants_more_is_not_handed_on,
    a_lease_on_which_a_call_works_is_not_handed_on, a_lease_whose_token_was_read_is_not_handed_on,
};
use crate::rules::{Kind, Mutant, run_with};

#[test]
fn each_rule_of_the_client_fails_its_test_when_it_is_broken() {
    let tests: [(Mutant, fn()); 13] = [
        (Mutant::FenceHandedOn, a_lease_with_a_fence_is_not_handed_on),
        (Mutant::TermHandedOn, a_lease_of_a_leader_is_not_handed_on),
        (Mutant::BusyLeaseHandedOn, a_lease_on_which_a_call_works_is_not_handed_on),
        (Mutant::KnownTokenHandedOn, a_lease_whose_token_was_read_is_not_handed_on),
        (Mutant::SpentLeaseHandedOn, a_lease_of_which_the_next_holder_wants_more_is_not_handed_on),
        (Mutant::LingersThoughWaitedFor, a_lock_that_another_client_wants_does_not_begin_to_linger),
        (Mutant::RetakenWithoutEnd, a_lock_is_taken_again_as_often_as_the_configuration_allows),
        (Mutant::LingersByOldTtl, a_lock_that_was_extended_by_another_ttl_does_not_linger),
        (Mutant::LostLeaseRetaken, a_lock_that_is_lost_while_it_lingers_is_not_taken_again),
        (Mutant::LingersBeyondClient, a_lock_that_lingers_is_released_at_the_end_of_its_client),
        (Mutant::LingersBeyondItsTime, a_lock_whose_time_to_linger_is_over_is_not_taken_again),
        (Mutant::SpentLeaseRetaken, a_call_that_wants_more_than_is_left_goes_behind_the_release),
        (Mutant::DrivingCallerWakesTask, a_call_does_not_wait_for_the_end_of_another),
    ];
    let all = Mutant::all().filter(|mutant| mutant.kind() == Kind::ByClientTest);
    assert!(
        all.eq(tests.iter().map(|&(mutant, _)| mutant)),
        "each has its test here, in this order"
    );
    for (mutant, test) in tests {
        assert!(catch_unwind(|| run_with(Some(mutant), test)).is_err(), "{mutant:?} survives");
    }
}
