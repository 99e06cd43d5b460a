//! The judge: whether the terms that candidates wrote down overlap, each by its own deadline, and
//! how long each leader took to follow. The judge knows nothing of locks.
//!
//! All times are nanoseconds of the machine's one clock, which all processes read.

use std::fmt;

/// One term, as its leader wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) candidate: usize,
    /// The candidate read the clock when it had won the campaign.
    pub(crate) began: u64,
    /// The last deadline that the leader believed in, or the moment at which it resigned or learned
    /// of its loss, if that was earlier.
    pub(crate) over: u64,
    /// How the term ended.
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Resigned,
    Lost,
    /// The diary ends: the process was killed, or the test was over.
    Silence,
}

/// The findings of the judge.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) terms: usize,
    /// Terms that began before an earlier one was over.
    pub(crate) overlaps: Vec<(Term, Term)>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} terms, {} overlaps", self.terms, self.overlaps.len())?;
        self.overlaps.iter().take(3).try_for_each(|(one, other)| {
            let by = one.over.saturating_sub(other.began) / 1_000;
            write!(f, "\n{one:?} and {other:?}, by {by} us")
        })
    }
}

/// The terms of one diary: `lead NOW DEADLINE`, `until DEADLINE`, `resign NOW`, `lost NOW`, each on
/// a line. A line that a kill cut off is left out.
pub(crate) fn read(candidate: usize, diary: &str) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    let whole = diary.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a time")).collect();
        if word == "lead" {
            let (began, over) = (numbers[0], numbers[1]);
            terms.push(Term { candidate, began, over, end: End::Silence });
            continue;
        }
        let term = terms.last_mut().expect("a term begins before it goes on");
        match word {
            // A deadline may also move forward: the leader asked the nodes for another one, and
            // they did not answer.
            "until" => term.over = numbers[0],
            "resign" => (term.over, term.end) = (term.over.min(numbers[0]), End::Resigned),
            "lost" => (term.over, term.end) = (term.over.min(numbers[0]), End::Lost),
            other => panic!("{other} in a diary"),
        }
    }
    terms
}

/// Judges all terms of an election.
pub(crate) fn judge(mut terms: Vec<Term>) -> Verdict {
    terms.sort_by_key(|term| term.began);
    let mut verdict = Verdict { terms: terms.len(), overlaps: Vec::new() };
    let mut longest: Option<&Term> = None;
    for term in &terms {
        if let Some(before) = longest
            && term.began < before.over
        {
            verdict.overlaps.push((before.clone(), term.clone()));
        }
        if longest.is_none_or(|before| before.over < term.over) {
            longest = Some(term);
        }
    }
    verdict
}

#[test]
fn terms_overlap_where_one_begins_before_another_is_over() {
    let overlaps = |diaries: [&str; 2]| {
        let terms = diaries.iter().enumerate().flat_map(|(who, diary)| read(who, diary));
        judge(terms.collect()).overlaps.len()
    };
    let first = "lead 10 50\nuntil 90\n";
    assert_eq!(overlaps([first, "lead 90 130\n"]), 0);
    assert_eq!(overlaps([first, "lead 89 130\n"]), 1);
    // A leader that resigns, or knows of its loss, leads no longer; a deadline that has passed
    // stays.
    assert_eq!(overlaps(["lead 10 50\nuntil 90\nresign 70\n", "lead 71 130\n"]), 0);
    assert_eq!(overlaps(["lead 10 50\nuntil 90\nlost 70\n", "lead 69 130\n"]), 1);
    assert_eq!(overlaps(["lead 10 50\nlost 999\n", "lead 50 130\n"]), 0);
    // The judge remembers a long term beyond a short one inside it.
    assert_eq!(overlaps(["lead 10 500\n", "lead 20 30\nlead 40 60\n"]), 2);
    // A line that was cut off says nothing.
    assert_eq!(overlaps(["lead 10 50\nuntil 9", "lead 60 130\n"]), 0);
}
