//! How tests wait for events, and how late an event may be.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long a test waits for an event that must come; a test that waits for longer fails.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The time that a loaded machine may add to a call.
pub const SLACK: Duration = Duration::from_secs(2);

/// The TTL of locks that must not end during a test.
pub const TTL: Duration = Duration::from_secs(20);

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Time since the machine booted, suspended or not: deadlines are counted on this clock.
pub fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("the clock began at boot");
    let nanos = u32::try_from(time.tv_nsec).expect("nanoseconds of a second");
    Duration::new(seconds, nanos)
}

/// Whether `condition` becomes true within `limit`. The longer `eventually` waits, the less often
/// it looks, because a look may start a process.
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begin = now();
    loop {
        if condition() {
            return true;
        }
        let waited = now() - begin;
        if waited >= limit {
            return false;
        }
        thread::sleep((waited / 10).clamp(ms(5), ms(50)));
    }
}

/// Calls again if a signal interrupted the call. Stopping and continuing this process also
/// interrupts calls.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The result of `call` and how long it took.
pub fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let begin = now();
    let value = call();
    (value, now() - begin)
}

/// Runs `call`, which must end by `deadline`, plus the time that a loaded machine may add.
#[track_caller]
pub fn ends_within<T>(deadline: Duration, call: impl FnOnce() -> T) -> T {
    let (value, elapsed) = timed(call);
    assert!(elapsed <= deadline + SLACK, "a call of {deadline:?} took {elapsed:?}");
    value
}

/// Calls `late` up to five times. `late` performs an action that must come by a deadline, and
/// returns how late the action came. A busy machine is late now and then, but not by more than
/// `limit` at each try.
#[track_caller]
pub fn soon_after(limit: Duration, mut late: impl FnMut() -> Duration) {
    const TRIES: usize = 5;
    let tries: Vec<_> = (0..TRIES).map(|_| late()).take_while(|late| *late > limit).collect();
    assert!(tries.len() < TRIES, "at each try too late: {tries:?}");
}

/// Sets the flag when it is dropped, so threads that run until the flag is set also end if an
/// assertion fails.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
