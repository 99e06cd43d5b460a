//! [`Fence`]: a resource in memory refuses a holder that is not the latest.
//!
//! Layer: bottom, plain values. No clock, no node, no lock; nothing of the crate uses it.

use std::sync::atomic::Ordering;

// Unit tests take the atomic of a checker of thread schedules.
#[cfg(test)]
use shuttle::sync::atomic::AtomicU64;
#[cfg(not(test))]
use std::sync::atomic::AtomicU64;

use thiserror::Error;

/// A gate in front of a resource in memory: it keeps the highest fence it has seen and refuses a
/// lower one.
///
/// A fence is a number that grows with every holder of a lock. A holder that was paused until its
/// lease was over may still act. Its number is lower than that of the next holder, so the resource
/// can refuse it.
///
/// ```
/// use redbolt::fence::{Fence, StaleFence};
/// use std::sync::Mutex;
///
/// struct Stock {
///     fence: Fence,
///     pieces: Mutex<u64>,
/// }
///
/// impl Stock {
///     fn write(&self, fence: u64, pieces: u64) -> Result<(), StaleFence> {
///         // Check and write are one step: nobody writes between the two.
///         let mut stored = self.pieces.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
///         self.fence.check(fence)?;
///         *stored = pieces;
///         Ok(())
///     }
/// }
///
/// let stock = Stock { fence: Fence::new(), pieces: Mutex::new(10) };
/// stock.write(7, 9)?; // the first holder,
/// stock.write(7, 8)?; // as often as it likes;
/// stock.write(8, 5)?; // the next one;
/// let stale = stock.write(7, 7).unwrap_err(); // the first one wakes up
/// assert_eq!((stale.given, stale.seen), (7, 8));
/// # Ok::<(), StaleFence>(())
/// ```
///
/// It needs this from you:
///
/// - **Check and write in one step**, under the same mutex or on the same thread. `check` itself is
///   one atomic operation, but a writer that is paused between its check and its write would
///   still write late.
/// - **One gate for each lock key.** Numbers compare only within one key.
/// - **Store the number with the data, if the data outlives the process.** The gate forgets at a
///   restart. Begin again with [`Fence::since`] and the stored number.
/// - **The first act of a holder touches the resource.** Until then the gate has not heard of the
///   new holder, and accepts a stale write. A call of `check` is enough.
///
/// The guide `guide::fencing` shows the same for databases and files.
#[derive(Debug, Default)]
pub struct Fence {
    highest: AtomicU64,
}

impl Fence {
    /// A gate that has seen no fence: it accepts whichever comes first.
    #[must_use]
    pub const fn new() -> Self {
        Self::since(0)
    }

    /// A gate that has seen `highest`: the number that was stored with the data.
    #[must_use]
    pub const fn since(highest: u64) -> Self {
        Self { highest: AtomicU64::new(highest) }
    }

    /// Accepts the highest number seen so far or a higher one, and remembers it.
    ///
    /// The gate decides each call, on whatever thread, against the fences accepted before it. So
    /// the accepted numbers never go down.
    ///
    /// # Errors
    ///
    /// [`StaleFence`] for a lower number: a later holder was here. Write nothing.
    pub fn check(&self, fence: u64) -> Result<(), StaleFence> {
        let seen = self.highest.fetch_max(fence, Ordering::AcqRel);
        if fence < seen { Err(StaleFence { given: fence, seen }) } else { Ok(()) }
    }

    /// The highest number accepted so far; zero if there was none. Store it with the data.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }
}

/// The resource refused a fence because a later holder of the lock was there before. The caller's
/// lock is over; it must stop its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error("fence {given} is stale: the resource has seen {seen}")]
pub struct StaleFence {
    /// The number that the caller gave.
    pub given: u64,
    /// The highest number that the resource had seen.
    pub seen: u64,
}

/// The gate in every order of the threads. Tests that need no threads are in
/// `tests/fenced_resources/memory.rs`.
#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Mutex};

    use shuttle::thread;

    use super::*;

    /// Runs the checks of some threads in all orders, and hands each order's results to `judge`, in
    /// the order in which they were decided.
    fn in_every_order(
        threads: &'static [&'static [u64]],
        judge: impl Fn(&[Result<u64, StaleFence>]) + Send + Sync + 'static,
    ) {
        let orders = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&orders);
        shuttle::check_dfs(
            move || {
                let gate = Arc::new(Fence::new());
                // The checker changes threads only right before an atomic operation, so no thread
                // runs between the last one of a check and this list.
                let results = Arc::new(Mutex::new(Vec::new()));
                let run = |given: &'static [u64]| {
                    let (gate, results) = (Arc::clone(&gate), Arc::clone(&results));
                    thread::spawn(move || {
                        for fence in given {
                            let result = gate.check(*fence).map(|()| *fence);
                            results.lock().unwrap().push(result);
                        }
                    })
                };
                let threads: Vec<_> = threads.iter().copied().map(run).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                judge(&results.lock().unwrap());
                count.fetch_add(1, Ordering::Relaxed);
            },
            None,
        );
        // Five checks, of which two and two keep the order of their thread: 30 orders.
        let orders = orders.load(Ordering::Relaxed);
        assert!(orders >= 30, "{orders} orders");
    }

    #[test]
    fn the_fences_accepted_on_several_threads_never_go_down() {
        in_every_order(&[&[1, 4], &[2, 2], &[3]], |results| {
            let accepted: Vec<u64> = results.iter().flatten().copied().collect();
            assert!(accepted.is_sorted(), "{accepted:?}");
        });
    }

    #[test]
    fn a_refusal_names_the_highest_fence_that_was_accepted_before() {
        in_every_order(&[&[1, 4], &[2, 2], &[3]], |results| {
            let mut highest = 0;
            for result in results {
                match *result {
                    Ok(fence) => highest = highest.max(fence),
                    Err(StaleFence { given, seen }) => {
                        assert!(given < seen && seen == highest, "{given}, {seen}: {results:?}");
                    }
                }
            }
            assert_eq!(highest, 4);
        });
    }
}
