//! [`Sighting`]: what was last seen of a leader, and when to look again. It asks nothing and reads no
//! clock: whoever observes does.

use std::time::Duration;

use super::SeenLock;
use crate::time::Instant;

/// The shortest time between two looks.
const PACE_MIN: Duration = Duration::from_millis(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sighting {
    pub(crate) key: Vec<u8>,
    pace: Duration,
    last: Option<SeenLock>,
    /// When the next look is due.
    pub(crate) due: Instant,
}

impl Sighting {
    pub(crate) fn new(key: &[u8], pace: Duration) -> Self {
        Self { key: key.to_owned(), pace: pace.max(PACE_MIN), last: None, due: Instant::default() }
    }

    /// A look begins at `now`.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.due = now + self.pace;
    }

    /// What a look saw, if it is news.
    pub(crate) fn take(&mut self, seen: SeenLock) -> Option<SeenLock> {
        if seen.has_other_leader(self.last.as_ref()) {
            self.last = Some(seen.clone());
            Some(seen)
        } else {
            None
        }
    }
}
