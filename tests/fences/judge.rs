//! The judge: whether the fences of all acquisitions are in order, by the times at which each began
//! and was handed out. The judge knows nothing of how a number was made.

use std::fmt;

use redbolt::Instant;

/// One acquisition that was won.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) key: usize,
    pub(crate) client: usize,
    pub(crate) fence: u64,
    /// The client read the clock before the call.
    pub(crate) began: Instant,
    /// The client read the clock after it had the lease.
    pub(crate) handed: Instant,
    pub(crate) deadline: Instant,
    /// The start of the release, or the deadline if that came first.
    pub(crate) over: Instant,
}

/// The faults that the judge found; all zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Leases with the fence of another lease.
    pub(crate) duplicates: u64,
    /// Leases that began after a lease with a higher fence was handed out.
    pub(crate) inversions: u64,
    /// Leases that were handed out after a lease with a higher fence, while both were valid.
    pub(crate) disorders: u64,
    /// Leases that were handed out while another lease was valid and not released.
    pub(crate) overlaps: u64,
    /// Neighbours by fence of which the first was handed out before the second began.
    pub(crate) ordered: u64,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        Self { ordered: 0, ..*self } == Self::default()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { duplicates, inversions, disorders, overlaps, ordered } = self;
        write!(
            f,
            "{duplicates} duplicates, {inversions} inversions, {disorders} out of the order of the \
             hand-outs, {overlaps} beside another holder; {ordered} begun after the lease before \
             was handed out"
        )
    }
}

/// How many complaints are printed in full.
const TOLD_MAX: u64 = 2;

/// Judges all acquisitions, and prints the first few that are wrong.
pub(crate) fn judge(mut grants: Vec<Grant>) -> Verdict {
    let mut verdict = Verdict::default();
    grants.sort_unstable_by_key(|grant| (grant.key, grant.fence));
    for of_key in grants.chunk_by(|one, other| one.key == other.key) {
        verdict.judge_numbers(of_key);
        verdict.judge_real_time(of_key);
        verdict.judge_hand_outs(of_key);
    }
    verdict
}

impl Verdict {
    /// Judges the leases in the order of their fences.
    fn judge_numbers(&mut self, grants: &[Grant]) {
        for pair in grants.windows(2) {
            self.ordered += u64::from(pair[0].handed < pair[1].began);
            if pair[0].fence == pair[1].fence {
                tell(&mut self.duplicates, "duplicate", &pair[0], &pair[1]);
            }
        }
    }

    /// A lease that was handed out before another lease began has the lower fence.
    fn judge_real_time(&mut self, grants: &[Grant]) {
        let mut by_hand_out: Vec<_> = grants.iter().collect();
        by_hand_out.sort_unstable_by_key(|grant| grant.handed);
        let mut by_begin = by_hand_out.clone();
        by_begin.sort_unstable_by_key(|grant| grant.began);
        let mut earlier = by_hand_out.into_iter().peekable();
        let mut highest: Option<&Grant> = None;
        for grant in by_begin {
            while let Some(other) = earlier.next_if(|other| other.handed < grant.began) {
                highest = highest.filter(|highest| highest.fence > other.fence).or(Some(other));
            }
            if let Some(highest) = highest.filter(|highest| highest.fence > grant.fence) {
                tell(&mut self.inversions, "inversion", highest, grant);
            }
        }
    }

    /// No two leases that were valid when they were handed out overlap, and their fences are in the
    /// order of the hand-outs.
    fn judge_hand_outs(&mut self, grants: &[Grant]) {
        let mut valid: Vec<_> =
            grants.iter().filter(|grant| grant.handed < grant.deadline).collect();
        valid.sort_unstable_by_key(|grant| grant.handed);
        let Some((mut highest, rest)) = valid.split_first() else { return };
        let mut longest = highest;
        for grant in rest {
            if grant.fence < highest.fence {
                tell(&mut self.disorders, "disorder", highest, grant);
            }
            if grant.handed < longest.over {
                tell(&mut self.overlaps, "two holders", longest, grant);
            }
            if grant.fence > highest.fence {
                highest = grant;
            }
            if grant.over > longest.over {
                longest = grant;
            }
        }
    }
}

fn tell(count: &mut u64, what: &str, earlier: &Grant, later: &Grant) {
    *count += 1;
    if *count <= TOLD_MAX {
        println!("{what} of key {}: {earlier}, then {later}", later.key);
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = [self.began, self.handed, self.deadline, self.over].map(Instant::as_nanos);
        write!(
            f,
            "fence {} of client {} (began, handed out, deadline, over: {nanos:?})",
            self.fence, self.client
        )
    }
}

#[test]
fn the_judge_sees_each_kind_of_disorder() {
    let grant = |fence, began: u64, handed: u64, over: u64| Grant {
        key: 0,
        client: 0,
        fence,
        began: Instant::from_nanos(began),
        handed: Instant::from_nanos(handed),
        deadline: Instant::from_nanos(handed + 10),
        over: Instant::from_nanos(over),
    };
    let first = grant(5, 0, 2, 4);
    let verdict = judge(vec![first, grant(6, 5, 7, 9)]);
    assert_eq!(verdict, Verdict { ordered: 1, ..Verdict::default() });
    assert!(verdict.is_clean());
    // Each is wrong in one way only, except an inversion, which is out of order as well.
    let verdict = judge(vec![first, grant(5, 1, 5, 9)]);
    assert_eq!(verdict, Verdict { duplicates: 1, ..Verdict::default() });
    let verdict = judge(vec![first, grant(4, 1, 5, 9)]);
    assert_eq!(verdict, Verdict { disorders: 1, ..Verdict::default() });
    let verdict = judge(vec![first, grant(4, 3, 5, 9)]);
    assert_eq!(verdict, Verdict { disorders: 1, inversions: 1, ..Verdict::default() });
    let verdict = judge(vec![first, grant(6, 1, 3, 9)]);
    assert_eq!(verdict, Verdict { overlaps: 1, ..Verdict::default() });
    // The lease was over when its holder learned of it, so only real time judges it.
    let late = Grant { deadline: Instant::from_nanos(7), ..grant(4, 1, 8, 7) };
    assert!(judge(vec![first, late]).is_clean());
}
