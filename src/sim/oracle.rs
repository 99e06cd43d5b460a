//! Judges, on the true time, what clients believed: which client held which key from when to when.
//!
//! The judge knows no engine. A window begins when a lease is handed over. It ends when its holder
//! stops, or at the deadline that the holder was told, on the holder's own clock.

use super::Violation;
use super::clock::Global;
use crate::rules::Kind;

/// One span in which one holder believed that a key was its own.
#[derive(Clone, Copy, Debug)]
struct Window {
    holder: u64,
    start: Global,
    end: Global,
}

/// All windows so far, and the first violation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Oracle {
    keys: Vec<Vec<Window>>,
    /// The fence of the last lease of each key.
    fences: Vec<u64>,
    /// The first violation.
    pub violation: Option<Violation>,
    /// The kinds that no longer count as violations.
    pub(super) excused: &'static [Kind],
}

impl Oracle {
    /// A judge of `keys` keys, none of which is held yet.
    #[must_use]
    pub fn new(keys: usize) -> Self {
        Self { keys: vec![Vec::new(); keys], fences: vec![0; keys], violation: None, excused: &[] }
    }

    /// Something is not as it must be. The first violation counts.
    pub fn fail(&mut self, kind: Kind, what: impl FnOnce() -> String) {
        if self.violation.is_none() && !self.excused.contains(&kind) {
            self.violation = Some(Violation { kind, text: what() });
        }
    }

    /// Fails unless `holds`.
    pub fn check(&mut self, kind: Kind, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(kind, what);
        }
    }

    /// From `now` on `holder` believes that it has `key` until `end`.
    pub fn hold(&mut self, holder: u64, key: usize, now: Global, end: Global) {
        if end <= now {
            // The deadline has passed: the holder does not act on it. An open window ends as well.
            return self.stop(holder, key, end);
        }
        let windows = &mut self.keys[key];
        let other = windows.iter().rev().find(|other| other.holder != holder && other.end > now);
        if let Some(&other) = other {
            self.fail(Kind::TwoHolders, || {
                format!("key {key}: {holder} holds until {end}, and at {now} so does {other:?}")
            });
            return;
        }
        match windows.iter_mut().rev().find(|window| window.holder == holder && window.end > now) {
            Some(window) => window.end = end,
            None => {
                windows.push(Window { holder, start: now, end });
                self.check_uninterrupted(holder, key);
            }
        }
    }

    /// If a lease goes on after its end, no other client may have held its key meanwhile.
    fn check_uninterrupted(&mut self, holder: u64, key: usize) {
        let mut before = self.keys[key].iter().rev().skip(1);
        let own = before.clone().find(|window| window.holder == holder).map(|window| window.end);
        let Some(ended) = own else { return };
        let other = before.find(|window| window.holder != holder && window.end > ended).copied();
        self.check(Kind::TwoHolders, other.is_none(), || {
            format!("key {key}: {holder} goes on after {ended}, and meanwhile {other:?} held it")
        });
    }

    /// A lease of `key` with this fence was handed over. Leases exclude each other, so each lease
    /// is granted after the lease before it. Its fence must be higher, too.
    pub fn fenced(&mut self, key: usize, fence: u64) {
        let last = std::mem::replace(&mut self.fences[key], fence);
        self.check(Kind::FenceOrder, last < fence, || {
            format!("key {key}: fence {fence} behind fence {last}")
        });
    }

    /// `holder` stops believing at `at`.
    pub fn stop(&mut self, holder: u64, key: usize, at: Global) {
        for window in self.keys[key].iter_mut().rev().filter(|window| window.holder == holder) {
            window.end = window.end.min(at.max(window.start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::clock::SECOND;

    /// The first holder goes on with the same lease after its end.
    #[test]
    fn a_lease_that_goes_on_after_its_end_is_a_violation_only_if_another_client_held_the_key() {
        for (other_key, expected) in
            [(None, None), (Some(1), None), (Some(0), Some(Kind::TwoHolders))]
        {
            let mut judge = Oracle::new(2);
            judge.hold(1, 0, SECOND, 2 * SECOND);
            if let Some(key) = other_key {
                judge.hold(2, key, 3 * SECOND, 5 * SECOND);
                judge.stop(2, key, 4 * SECOND);
            }
            assert!(judge.violation.is_none(), "nobody held a key beside another");
            judge.hold(1, 0, 6 * SECOND, 7 * SECOND);
            assert_eq!(judge.violation.map(|violation| violation.kind), expected, "{other_key:?}");
        }
    }
}
