//! The invariants of the engine between two inputs: each part by itself, and the parts together.
//! Debug builds check them at each input, before or after it.

use super::core::Engine;

/// Only small engines are checked: a check takes as long as there are tokens.
const SMALL: usize = 64;

impl Engine {
    /// Panics if an invariant is broken; only in debug builds.
    #[inline(always)]
    pub(super) fn check_if_small(&self) {
        if cfg!(debug_assertions) && self.locks.slots.in_use() <= SMALL {
            self.check();
        }
    }

    /// Checks after a node's bytes. Each answer ends with a line's end: without one, the locks are
    /// as they were.
    #[inline(always)]
    pub(super) fn check_read(&self, bytes: &[u8]) {
        if cfg!(debug_assertions) && bytes.contains(&b'\n') {
            self.check_if_small();
        }
    }

    #[cold]
    fn check(&self) {
        self.locks.check();
        self.waiting.check();
        self.sets.check();
        assert!(!self.is_acting, "an action is not done");
        for (op, has_attempt) in self.waiting.calls_under_way() {
            let op = self.locks.ops.at(op);
            let state = self.locks.slots.at(op.slot()).state();
            let is_so = if has_attempt { state.is_lock() } else { state.is_deleted() };
            assert!(is_so, "{op:?} waits with {state:?}, has an attempt: {has_attempt}");
        }
    }
}
