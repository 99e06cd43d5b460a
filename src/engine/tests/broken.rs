//! Rules whose breaking the simulation does not see, or hardly ever: it costs time and no lock.
//! Without a rule, the test that is named for it fails.

use std::panic::catch_unwind;

use super::exchange::{
    a_lease_outlives_a_change_of_lists_and_is_extended_on_the_new_ones,
    an_extension_that_begins_under_new_lists_needs_their_quorums,
    lists_that_follow_have_one_in_common, the_old_list_is_left_only_when_its_leases_are_over,
};
use super::extending::{
    a_lock_is_not_adopted_while_this_client_has_it_or_deletes_it,
    a_longer_adoption_counts_no_node_that_may_still_run_a_shorter_one,
    a_node_that_refuses_a_form_is_extended_though_the_others_have_decided,
    a_node_whose_address_led_to_an_old_process_and_back_counts_in_an_adoption,
};
use super::fencing::{
    a_client_whose_clock_is_off_gets_no_fence,
    a_grant_that_is_taken_back_is_made_up_for_by_another,
    an_accept_of_a_node_that_is_no_master_does_not_count,
    of_two_lists_a_quorum_of_each_accepts_a_fence,
    the_next_number_is_above_the_clients_own_last_fence,
};
use super::handing::{
    a_client_that_ends_deletes_again_where_a_script_may_run_behind_its_release,
    a_client_that_ends_leaves_the_channel_and_deletes_what_came,
    a_delete_is_owed_where_the_connection_ends_before_the_script_is_answered,
    a_late_word_of_a_node_without_a_vote_is_none,
    a_release_is_repeated_where_a_script_may_run_unheard_behind_it,
    a_transfer_with_another_ttl_is_no_vote,
    a_waiter_that_was_silent_for_a_quarter_of_its_ttl_is_woken,
    the_list_that_comes_with_a_late_word_goes_with_the_lock,
    what_is_owed_for_a_part_of_a_lock_is_owed_for_longer_than_its_ttl,
};
use super::healing::{
    a_lease_that_is_kept_outlives_the_memory_of_all_its_nodes,
    a_node_that_has_no_vote_yet_does_not_get_the_token,
    a_node_that_may_still_run_a_shorter_extension_does_not_get_the_token,
    a_node_whose_address_leads_back_to_the_process_before_is_not_extended_to_a_longer_ttl,
    an_adoption_gives_the_token_to_no_node,
    an_answer_that_comes_after_its_round_does_not_count_in_the_next,
    the_release_goes_behind_a_set_that_gives_the_token_again,
};
use super::joint::no_lock_is_handed_over_between_clients_that_may_have_other_lists;
use super::ownership::a_lease_is_given_away_once_every_node_has_answered_its_extension;
use super::patience::a_node_that_left_since_one_was_tried_first_is_not_written_to;
use super::releasing::{
    a_debt_lives_a_ttl_from_the_late_answer_of_its_set,
    a_live_lease_owes_nothing_for_an_unanswered_set_until_it_is_released,
};
use super::sets::the_loss_of_one_key_is_the_loss_of_the_set_and_is_told_once;
use super::siblings::a_word_of_an_earlier_call_strikes_no_later_one_off;
use super::slots::a_writer_that_loses_its_gate_while_it_waits_begins_again;
use super::transfers::{
    a_client_that_reads_no_more_leaves_the_channel_and_deletes_what_came,
    a_lock_is_free_for_a_moment_after_so_many_transfers,
    a_lock_is_won_when_a_quorum_has_told_of_it_and_counts_from_before_the_offer,
    a_node_that_cannot_run_the_script_gets_the_plain_release_at_once_and_no_script_again,
    a_transfer_counts_for_the_node_that_ran_it_alone,
    a_waiter_that_is_told_by_too_few_nodes_is_woken_instead,
    a_waiter_that_was_silent_for_long_is_woken, each_node_is_named_in_what_it_tells,
    what_is_handed_over_to_a_call_that_gave_up_is_deleted_everywhere,
    where_a_connection_ended_the_token_is_deleted_and_has_no_vote,
};
use super::trouble::{
    a_grant_behind_an_answer_that_no_master_in_service_gives_is_not_believed,
    a_grant_that_may_have_come_long_after_a_look_does_not_count,
    a_node_that_is_owed_releases_gets_no_set_before_them,
    a_node_that_restarted_while_the_client_stood_still_waits_for_all_of_its_guard,
    the_second_address_of_a_server_hears_no_message_a_second_time,
};
use super::untimely::{
    a_lease_counts_from_the_offer_that_was_taken_up_though_a_newer_one_is_open,
    a_node_in_quarantine_has_no_vote_when_it_hands_a_lock_over,
    a_token_that_was_deleted_somewhere_is_not_offered_again, a_vote_ends_with_the_delete,
    an_offer_that_was_made_while_a_node_was_away_is_deleted_there_when_it_is_back,
    no_message_is_a_vote_for_an_attempt, what_was_owed_for_an_offer_is_not_paid_out_of_the_lease,
};
use super::waking::{
    a_waiter_that_gives_up_tells_the_holder, two_that_wait_for_each_other_try_again,
};
use crate::node::failing_over::a_node_that_hides_what_it_is_may_be_another_server;
use crate::node::tests::{
    a_master_that_becomes_a_replica_during_its_greeting_is_not_believed,
    an_old_node_met_for_the_first_time_is_admitted_and_a_young_one_waits,
};
use crate::rules::{Kind, Mutant, run_with};

/// Each rule with its test, in the order of the rules.
const TESTS: &[(Mutant, fn())] = &[
    // Clients of the lists before and behind are not in one seed.
    (Mutant::FencedByOneList, of_two_lists_a_quorum_of_each_accepts_a_fence),
    (
        Mutant::HandedOverBetweenLists,
        no_lock_is_handed_over_between_clients_that_may_have_other_lists,
    ),
    // It needs a role change between the two rounds of one attempt.
    (Mutant::DistrustedAcceptCounts, an_accept_of_a_node_that_is_no_master_does_not_count),
    // The counter refuses it: it costs a round trip for nothing.
    (Mutant::OwnFenceForgotten, the_next_number_is_above_the_clients_own_last_fence),
    // It changes no order: it only delays when the resource refuses a client.
    (Mutant::ClockNotCompared, a_client_whose_clock_is_off_gets_no_fence),
    // It needs a restart, a slow answer and a long stop at once: one seed in thousands.
    (
        Mutant::ClockReadBeforeBytes,
        a_node_that_restarted_while_the_client_stood_still_waits_for_all_of_its_guard,
    ),
    // It needs a failover, and a new master that is busy only while it is greeted.
    (Mutant::HiddenServerExtends, a_node_that_hides_what_it_is_may_be_another_server),
    // It needs a failover, a slow answer and a lease of the fewest votes: one seed in many thousands.
    (Mutant::UnwatchedNodeCounts, a_grant_that_may_have_come_long_after_a_look_does_not_count),
    // It is less than a second, of a server that restarted while a lock of nearly all of `max_ttl`
    // went on.
    (
        Mutant::AgeBelievedTooSoon,
        an_old_node_met_for_the_first_time_is_admitted_and_a_young_one_waits,
    ),
    // It needs an address that leads to another process and back, and a command that runs late.
    (
        Mutant::OldProcessTakenForNew,
        a_node_whose_address_led_to_an_old_process_and_back_counts_in_an_adoption,
    ),
    // As above.
    (
        Mutant::ProcessBackTakenForNew,
        a_node_whose_address_leads_back_to_the_process_before_is_not_extended_to_a_longer_ttl,
    ),
    // As above.
    (
        Mutant::FirstProcessBackUnseen,
        a_node_whose_address_leads_back_to_the_process_before_is_not_extended_to_a_longer_ttl,
    ),
    // It needs a lock that a node forgot, and a grant of that node behind its own message: one seed
    // in thousands.
    (
        Mutant::TroubleUnseen,
        a_grant_behind_an_answer_that_no_master_in_service_gives_is_not_believed,
    ),
    // It needs a role change in the middle of a greeting, and one back that no client sees.
    (
        Mutant::LateRefusalUnheard,
        a_master_that_becomes_a_replica_during_its_greeting_is_not_believed,
    ),
    // Its grant would not count.
    (Mutant::VoterOfBeforeAsked, a_node_that_left_since_one_was_tried_first_is_not_written_to),
    // A key of this client denies the SET, and that key is about to go.
    (Mutant::SetBeforeDebts, a_node_that_is_owed_releases_gets_no_set_before_them),
    // Their lists change one step at a time.
    (Mutant::ListsWithoutCommonOne, lists_that_follow_have_one_in_common),
    (Mutant::ListsLeftTooEarly, the_old_list_is_left_only_when_its_leases_are_over),
    (
        Mutant::LeaseOfOldListsLost,
        a_lease_outlives_a_change_of_lists_and_is_extended_on_the_new_ones,
    ),
    (Mutant::ExtendedByOldLists, an_extension_that_begins_under_new_lists_needs_their_quorums),
    // The attempt ends by its timeout.
    (Mutant::WithdrawnStillCounted, a_grant_that_is_taken_back_is_made_up_for_by_another),
    // It needs a connection that ends with a SET at a frozen node, and a release over the next one
    // before that SET runs.
    (
        Mutant::ReleaseNotRepeated,
        a_live_lease_owes_nothing_for_an_unanswered_set_until_it_is_released,
    ),
    (Mutant::DebtEndsTooSoon, a_debt_lives_a_ttl_from_the_late_answer_of_its_set),
    // It needs a client that adopts the lease while the command is on its way.
    (Mutant::UnsettledGivenAway, a_lease_is_given_away_once_every_node_has_answered_its_extension),
    (Mutant::UnsettledForgotten, a_longer_adoption_counts_no_node_that_may_still_run_a_shorter_one),
    (Mutant::AdoptedInHand, a_lock_is_not_adopted_while_this_client_has_it_or_deletes_it),
    // What these break needs a node that forgets, and more than one that is away behind it.
    (Mutant::AdoptionHeals, an_adoption_gives_the_token_to_no_node),
    (
        Mutant::TaintedNodeHealed,
        a_node_that_may_still_run_a_shorter_extension_does_not_get_the_token,
    ),
    (Mutant::QuarantinedNodeHealed, a_node_that_has_no_vote_yet_does_not_get_the_token),
    (Mutant::HealNotReleased, the_release_goes_behind_a_set_that_gives_the_token_again),
    (Mutant::EarlierRoundCounts, an_answer_that_comes_after_its_round_does_not_count_in_the_next),
    (Mutant::ForgettingTakenForDelete, a_lease_that_is_kept_outlives_the_memory_of_all_its_nodes),
    // The release stands behind it on the connection.
    (
        Mutant::StaleExtensionResent,
        a_node_that_refuses_a_form_is_extended_though_the_others_have_decided,
    ),
    // The keys of a set are mostly lost together.
    (Mutant::LossOfOneKeyIgnored, the_loss_of_one_key_is_the_loss_of_the_set_and_is_told_once),
    // The gate must be lost while the writer waits for a reader.
    (Mutant::SlotsKeptWithoutGate, a_writer_that_loses_its_gate_while_it_waits_begins_again),
    // Debts are not paid out of a lease: it needs a delete that is on its way.
    (Mutant::DeletedTransferCounts, where_a_connection_ended_the_token_is_deleted_and_has_no_vote),
    // It needs a client that stands still between its question and the offer, while two nodes run
    // the script.
    (
        Mutant::NewestOfferDatesAll,
        a_lease_counts_from_the_offer_that_was_taken_up_though_a_newer_one_is_open,
    ),
    // The holder does not trust such a node either.
    (Mutant::DistrustedTransferCounts, a_node_in_quarantine_has_no_vote_when_it_hands_a_lock_over),
    // It needs a replica that passes on its master's messages.
    (Mutant::AnyNodeTransfers, a_transfer_counts_for_the_node_that_ran_it_alone),
    // No client's transfers count then.
    (Mutant::TransferNotMarked, each_node_is_named_in_what_it_tells),
    // It needs a hand-over between the end of a connection and the node's notice of it: one seed in
    // thousands.
    (
        Mutant::OfferWhileAwayKept,
        an_offer_that_was_made_while_a_node_was_away_is_deleted_there_when_it_is_back,
    ),
    // It needs a script that runs unheard after the lock was taken over, and a connection that
    // goes on.
    (
        Mutant::LateScriptNotReleased,
        a_lock_is_won_when_a_quorum_has_told_of_it_and_counts_from_before_the_offer,
    ),
    // It starves clients of other kinds.
    (Mutant::RowWithoutEnd, a_lock_is_free_for_a_moment_after_so_many_transfers),
    // It costs the others time.
    (Mutant::SilentTakesOver, a_waiter_that_was_silent_for_long_is_woken),
    // No client of the simulation forges messages.
    (Mutant::ForgedVoteCounts, no_message_is_a_vote_for_an_attempt),
    // No client of the simulation forges messages.
    (Mutant::AnyTtlCounts, a_transfer_with_another_ttl_is_no_vote),
    // It needs two holders that know one call, and a node that tells before the call is reported.
    (Mutant::TakenUpTwice, a_vote_ends_with_the_delete),
    // A late vote moves no deadline.
    (Mutant::LateVoteUnchecked, a_late_word_of_a_node_without_a_vote_is_none),
    // A deleted token mostly belongs to a call that is over.
    (Mutant::DeletedVoteStays, a_vote_ends_with_the_delete),
    // Each waiter finds out by a poll.
    (Mutant::LateListLost, the_list_that_comes_with_a_late_word_goes_with_the_lock),
    // The hand-over comes to nothing, and the holder wakes the waiter.
    (Mutant::DeletedTokenOffered, a_token_that_was_deleted_somewhere_is_not_offered_again),
    // It needs a connection that ends before the script runs, and a script that runs behind the
    // release.
    (Mutant::UntoldTakenForRun, a_release_is_repeated_where_a_script_may_run_unheard_behind_it),
    // It needs two holders that know one offer.
    (Mutant::OfferDebtEnds, what_is_owed_for_a_part_of_a_lock_is_owed_for_longer_than_its_ttl),
    // A quorum still holds the lease.
    (Mutant::DebtPaidOutOfLease, what_was_owed_for_an_offer_is_not_paid_out_of_the_lease),
    // Each node that tells has the key deleted a moment later.
    (Mutant::OthersNotDeleted, what_is_handed_over_to_a_call_that_gave_up_is_deleted_everywhere),
    // It costs messages.
    (Mutant::TurnGivenByEachNode, what_is_handed_over_to_a_call_that_gave_up_is_deleted_everywhere),
    // The client mostly hears of a script that runs before it leaves.
    (
        Mutant::HandedOverBeforeKept,
        a_client_that_reads_no_more_leaves_the_channel_and_deletes_what_came,
    ),
    // A script rarely comes between the release and the leaving.
    (
        Mutant::UnansweredTakenForLast,
        a_client_that_ends_deletes_again_where_a_script_may_run_behind_its_release,
    ),
    // A key that is handed over to a client that has ended stands for its TTL.
    (Mutant::EndsInChannel, a_client_that_ends_leaves_the_channel_and_deletes_what_came),
    // It costs messages.
    (Mutant::DuplicateListens, the_second_address_of_a_server_hears_no_message_a_second_time),
    // The TTLs there are long beside the silence that is allowed.
    (Mutant::StaleOfferTaken, a_waiter_that_was_silent_for_a_quarter_of_its_ttl_is_woken),
    // The key ends with its TTL, and few seeds wait for that.
    (
        Mutant::RefusedScriptLeavesKey,
        a_node_that_cannot_run_the_script_gets_the_plain_release_at_once_and_no_script_again,
    ),
    // The key stands for its TTL.
    (
        Mutant::LostScriptNotOwed,
        a_delete_is_owed_where_the_connection_ends_before_the_script_is_answered,
    ),
    // Each waiter finds out by a poll.
    (Mutant::FailedHandOverSilent, a_waiter_that_is_told_by_too_few_nodes_is_woken_instead),
    // A waiter that has given up deletes the lock that it is handed, and wakes the next.
    (Mutant::GiveUpIgnored, a_word_of_an_earlier_call_strikes_no_later_one_off),
    // Each finds out by a poll.
    (Mutant::RingNotBroken, two_that_wait_for_each_other_try_again),
    // A waiter that is woken too late passes the turn on: that costs a round trip.
    (Mutant::GiveUpNotTold, a_waiter_that_gives_up_tells_the_holder),
];

#[test]
fn each_rule_that_only_a_test_holds_fails_its_test_when_it_is_broken() {
    let rest = Mutant::all().filter(|mutant| mutant.kind() == Kind::ByTest);
    assert!(
        rest.eq(TESTS.iter().map(|&(mutant, _)| mutant)),
        "each has its test here, in this order"
    );
    for &(mutant, test) in TESTS {
        assert!(catch_unwind(|| run_with(Some(mutant), test)).is_err(), "{mutant:?} survives");
    }
}
