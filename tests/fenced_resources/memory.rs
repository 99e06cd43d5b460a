//! [`Fence`], the gate in memory. The unit tests of `src/fence.rs` cover its use by several
//! threads.

use proptest::prelude::*;
use redbolt::fence::Fence;

/// Both numbers of a refusal.
fn refused(gate: &Fence, fence: u64) -> Option<(u64, u64)> {
    gate.check(fence).err().map(|stale| (stale.given, stale.seen))
}

#[test]
fn a_gate_accepts_the_same_and_a_higher_fence_and_refuses_a_stale_one() {
    let gate = Fence::new();
    assert_eq!(refused(&gate, 7), None);
    assert_eq!(refused(&gate, 7), None, "the same fence");
    assert_eq!(refused(&gate, 9), None, "a higher fence");
    assert_eq!(refused(&gate, 8), Some((8, 9)), "a stale fence");
    assert_eq!(gate.highest(), 9);
    assert_eq!(refused(&gate, 9), None, "the same fence behind a stale one");
}

#[test]
fn a_gate_that_begins_with_the_stored_fence_refuses_those_before_it() {
    let before = Fence::default();
    assert_eq!(refused(&before, 41), None);
    let after = Fence::since(before.highest());
    assert_eq!(refused(&after, 40), Some((40, 41)));
    assert_eq!(refused(&after, 41), None);
}

#[test]
fn the_error_of_a_gate_says_both_numbers() {
    let error = Fence::since(8).check(7).unwrap_err();
    assert_eq!(error.to_string(), "fence 7 is stale: the resource has seen 8");
}

proptest! {
    #[test]
    fn a_gate_refuses_exactly_the_fences_below_the_highest_before_them(
        since in 0_u64..8,
        given in prop::collection::vec(0_u64..16, 0..32),
    ) {
        let gate = Fence::since(since);
        let mut highest = since;
        for fence in given {
            prop_assert_eq!(refused(&gate, fence), (fence < highest).then_some((fence, highest)));
            highest = highest.max(fence);
            prop_assert_eq!(gate.highest(), highest);
        }
    }
}
