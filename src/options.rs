//! [`LockOptions`]: what one call asks of its lock.
//!
//! Layer: bottom, plain values.

use std::time::Duration;

use crate::error::{HAS_LIMITS, LockError, NOT_PASSED_ON, SEVERAL_KEYS, UNHEARD};
use crate::key::{self, SLOTS_MAX};
use crate::retry::Retry;
use crate::time::Instant;

/// How to take one lock, and how to keep its lease.
///
/// Every call that takes a lock takes these; a [`Duration`] alone is the TTL. A call can set its
/// own TTL, least validity, timeout, retry, way of waiting, and how its lease is kept. The
/// [`Config`](crate::Config) gives the rest.
///
/// No call can change the settings on which all clients of a lock must agree, or its drift. With a
/// smaller drift a lease outlives its keys. After a TTL longer than `max_ttl`, another client may
/// believe a restarted node that has forgotten the lock.
///
/// ```
/// use redbolt::LockOptions;
/// use std::time::Duration;
///
/// let options = LockOptions::new(Duration::from_secs(10)).min_validity(Duration::from_secs(8));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct LockOptions {
    pub(crate) ttl: Duration,
    pub(crate) min_validity: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) keep_alive: bool,
    pub(crate) is_woken: bool,
    pub(crate) is_fenced: bool,
    /// The holder writes its name beside the lock.
    pub(crate) is_announced: bool,
    /// For how long the lease may linger, in milliseconds; zero if it may not.
    pub(crate) linger_ms: u32,
    /// With its first attempt, a call that may wait also announces itself to the holder. Set where locks
    /// linger.
    pub(crate) is_introduced: bool,
    /// The fence of a lock that is adopted.
    pub(crate) fence: Option<u64>,
    pub(crate) share: Share,
    /// The call takes a slot, all slots or one of several keys, or its lock may linger. One test covers
    /// all.
    pub(crate) is_special: bool,
}

/// How much of a lock a call takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Share {
    /// All of a lock without slots.
    #[default]
    Whole,
    /// One of so many slots.
    Slot(u8),
    /// All of so many slots, and the gate before them.
    AllSlots(u8),
    /// A key of a call for several.
    Part,
}

impl Share {
    /// Whether the lock has slots.
    #[inline]
    pub(crate) const fn is_of_slots(self) -> bool {
        matches!(self, Self::Slot(_) | Self::AllSlots(_))
    }

    /// Refuses a number of slots, or a name, that no lock with slots can have.
    pub(crate) fn check(self, name: &[u8]) -> Result<(), LockError> {
        let (Self::Slot(count) | Self::AllSlots(count)) = self else { return Ok(()) };
        if !(1..=SLOTS_MAX).contains(&count) {
            return Err(LockError::InvalidKeys { why: "a lock has 1 to 63 slots" });
        }
        if name.is_empty() { Err(LockError::InvalidKey { len: 0 }) } else { Ok(()) }
    }

    /// Whether the lock that the call wants has this slot.
    pub(crate) fn has(self, slot: Option<usize>) -> bool {
        let Self::Slot(slots) = self else { return true };
        slot.is_some_and(|slot| slot < usize::from(slots))
    }

    /// The name of the lock whose slot or gate the key is; of another key, the key itself.
    pub(crate) fn name(self, key: &[u8]) -> &[u8] {
        let name = match self {
            Self::Whole | Self::Part => None,
            Self::Slot(_) => key::name_and_slot(key).map(|(name, _)| name),
            Self::AllSlots(_) => key::name_of_gate(key),
        };
        name.unwrap_or(key)
    }
}

/// How long a call goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) ends: Instant,
    /// The call waits for the lock, instead of ending with its first attempt.
    pub(crate) is_patient: bool,
}

impl From<Duration> for LockOptions {
    /// The TTL; the configuration gives the rest.
    #[inline]
    fn from(ttl: Duration) -> Self {
        Self::new(ttl)
    }
}

impl LockOptions {
    /// A lock that each node drops `ttl` after the node granted it: whole milliseconds, rounded
    /// down, from 4 ms to `max_ttl`. With a `drift_factor` above 0.25 the least is 5 or 6 ms.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            min_validity: Duration::ZERO,
            timeout: None,
            retry: None,
            keep_alive: false,
            is_woken: true,
            is_fenced: false,
            is_announced: false,
            linger_ms: 0,
            is_introduced: false,
            fence: None,
            share: Share::Whole,
            is_special: false,
        }
    }

    /// The call takes one of `slots` slots of the lock, 1 to 63: at most so many callers hold the lock
    /// at the same time. [`Lease::slot`](crate::Lease::slot) tells which slot it is, from 0 on: a
    /// port, a shard, a licence.
    ///
    /// Each slot is a lock of its own, `key:slot:0` and so on, with its own token, fence and
    /// waiters. So the promises are those of a lock, and no call can hold the slot of another. All
    /// clients of a lock name the same number. You may raise it while they run: then at most the larger
    /// number of callers hold the lock. To lower it, wait until the slots above it are free.
    ///
    /// The call asks each node for the first free one of up to eight slots. It begins with a slot
    /// that this client released while at most one waiter waited for it, else with a slot drawn at
    /// random. If all slots of this first request are taken, the call asks for all others. So it
    /// costs one round trip while half of the slots are free, and two or three where nodes name
    /// different slots. A node that answers after the quorum gets a delete for each slot that the
    /// call did not win. For a lock with a [fence](Self::fenced), and where too few nodes run
    /// scripts (EVAL), the call asks for one slot by a SET. Then it asks for all others.
    ///
    /// A call that waits announces itself to the holder of one slot. That is the slot that this client
    /// released, else one that only some nodes granted, else one drawn at random. Every 100 to 200 ms,
    /// or every 16 to 32 round trips if that is longer, the call asks for up to eight other slots.
    ///
    /// A call for a slot that is to [linger](Self::linger) fails.
    #[must_use]
    pub fn slots(self, slots: usize) -> Self {
        self.sharing(Share::Slot(slot_count(slots)))
    }

    /// The call reads: it takes one of `readers` [slots](Self::slots). No call that
    /// [writes](Self::write) holds the lock meanwhile.
    ///
    /// All readers and writers of a lock must name the same number. A writer that names a smaller one
    /// does not take every slot that a reader may hold. To change the number, stop all of them first.
    #[must_use]
    pub fn read(self, readers: usize) -> Self {
        self.slots(readers)
    }

    /// The call writes: it takes all of `readers` slots, 1 to 63, so that no other caller holds one.
    /// The number is that of all [readers](Self::read).
    ///
    /// It also takes the gate, the key `key:slot`, which no reader touches. A writer that has the gate
    /// keeps each slot that it wins, and waits for all others at once. A reader that releases its slot
    /// hands it to the writer, before any reader that comes later. A slot that only some nodes granted
    /// is given back, and won later. In one write each node gets one SET for the gate and one per slot,
    /// and later as many deletes. For each slot, one node also gets a script, which announces the
    /// writer to the slot's holder. A `try_lock` sends one `MSETEX` instead, if all nodes have that
    /// command.
    /// [`Lease::keys`](crate::Lease::keys) has the gate and all slots.
    #[must_use]
    pub fn write(self, readers: usize) -> Self {
        self.sharing(Share::AllSlots(slot_count(readers)))
    }

    /// So much of the lock.
    pub(crate) const fn sharing(mut self, share: Share) -> Self {
        (self.share, self.is_special) = (share, true);
        self
    }

    /// The call returns no lease with less validity left than this. It releases such a lease, and
    /// tries again or fails ([`LockError::Expired`](crate::LockError::Expired)).
    #[must_use]
    pub const fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = validity;
        self
    }

    /// The call ends at the latest this long after its start, even where its [`Retry`] allows more.
    /// Zero: one attempt, which ends by itself. A call with less than two
    /// [`node_timeout`](crate::Config::node_timeout)s left is woken instead of being handed the lock.
    /// That takes one more round trip, and another call may be faster.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How `lock` tries again, instead of the configuration's way. `try_lock` never tries again.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Whether a release wakes the call while it waits for the lock. On by default if the
    /// configuration's [`direct_wake`](crate::Config::direct_wake) is on. A call can only switch it
    /// off; it then tries again after `delay` and `jitter` of its [`Retry`].
    #[must_use]
    pub const fn direct_wake(mut self, on: bool) -> Self {
        self.is_woken = on;
        self
    }

    /// The lease comes with a fence ([`Lease::fence`](crate::Lease::fence)): a number above the
    /// fence of every earlier lease of this key. A resource keeps the highest fence that it has
    /// seen, and refuses a lower one. Then it is safe from a holder that was paused beyond its
    /// deadline. See `guide::fencing`.
    ///
    /// It costs a longer command per node, and a second round trip if another client's number was
    /// higher. The nodes must run scripts (EVAL), and keep a second key per lock, `key:fence`, for
    /// [`fence_ttl`](crate::Config::fence_ttl). A node whose clock is further away than
    /// [`max_clock_skew`](crate::Config::max_clock_skew) does not vote
    /// ([`Cause::ClockOff`](crate::Cause::ClockOff)). All writers of a resource must ask for
    /// fences: a lease without one excludes the others, but is not ordered among them.
    #[must_use]
    pub const fn fenced(mut self) -> Self {
        self.is_fenced = true;
        self
    }

    /// The holder writes its name, and since when it holds the lock, beside the lock in the key
    /// `key:elected`. [`Client::leader`](crate::Client::leader) and `redbolt status` read it. The
    /// engine [keeps the lease alive](Self::keep_alive).
    /// [`Client::campaign`](crate::Client::campaign) asks for this; a loop of your own asks for it
    /// here. See `guide::election`.
    ///
    /// The name is that of the client ([`Config::client_name`](crate::Config::client_name)), and no
    /// lock depends on it. It costs no round trip, but one SET per node with the lease and with
    /// each extension, and a delete with the release. A user who may not write the key leads all
    /// the same, without a name.
    #[must_use]
    pub fn announced(mut self) -> Self {
        self.is_announced = true;
        self.keep_alive()
    }

    /// The lock may linger after its unlock. The client writes nothing for at most this long, and
    /// its next call for the key has the lock at once, without a command. This is useful for keys
    /// that usually come back to the same process: see `guide::client`.
    ///
    /// Whole milliseconds, counted from the last SET or extension that a quorum answered. The
    /// client releases the lock as soon as another client of this library announces that it waits.
    /// It also releases the lock when half of the validity (TTL less drift) is over, or a third if
    /// the lock is [kept alive](Self::keep_alive). It does so, too, after
    /// [`local_turns`](crate::Config::local_turns), and when the client ends. Clients of other
    /// libraries cannot announce themselves: they wait for as long as the lock lingers.
    ///
    /// With its first attempt, a call with this option tells the holder that the call waits. This
    /// takes one more command at one node. The call has a lock that lingers at another client after
    /// two round trips, where a call without this option needs three.
    ///
    /// An unlock returns [`Released`](crate::Unlocked::Released) although the nodes hold the key.
    /// The client does not let a lock linger whose token the caller asked for
    /// ([`Guard::token`](crate::Guard::token)): it releases that lock.
    ///
    /// The call fails with [`LockError::NoLinger`](crate::LockError::NoLinger) on a `Driver`, and for
    /// several keys, [slots](Self::slots), a lock with a fence and an announced lock. It also fails if the configuration has
    /// [`direct_wake`](crate::Config::direct_wake) off,
    /// [`max_extensions`](crate::Config::max_extensions) or [`max_hold`](crate::Config::max_hold).
    #[must_use]
    pub fn linger(mut self, limit: Duration) -> Self {
        self.linger_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self.is_introduced = self.linger_ms > 0;
        self.is_special = self.is_introduced || self.share != Share::Whole;
        self
    }

    /// The fence that the lease had, for a lock that is adopted
    /// ([`Client::adopt`](crate::Client::adopt)).
    #[must_use]
    pub const fn fence(mut self, fence: u64) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The engine extends the lease while it is held, every third of its TTL, and reports its loss.
    ///
    /// While the lease is valid, the engine repeats an extension that misses its quorum. The pause
    /// since the last one began is a `node_timeout`, and up to a quarter of it more at random. The
    /// engine stops when the lease is released, given away or lost, or at a limit of the
    /// configuration ([`max_extensions`](crate::Config::max_extensions),
    /// [`max_hold`](crate::Config::max_hold)). At a limit the lease goes on until its deadline.
    #[must_use]
    pub const fn keep_alive(mut self) -> Self {
        self.keep_alive = true;
        self
    }

    /// Refuses a lock that is to linger and cannot.
    pub(crate) const fn check_linger(
        &self,
        is_heard: bool,
        has_limits: bool,
    ) -> Result<(), LockError> {
        let why = match self {
            Self { linger_ms: 0, .. } => return Ok(()),
            _ if !is_heard => UNHEARD,
            Self { is_fenced: true, .. } | Self { is_announced: true, .. } => NOT_PASSED_ON,
            _ if has_limits => HAS_LIMITS,
            _ if self.share.is_of_slots() => SEVERAL_KEYS,
            _ => return Ok(()),
        };
        Err(LockError::NoLinger { why })
    }

    /// As the engine gets it: only the table of a client lets a lock linger.
    pub(crate) fn without_linger(self) -> Self {
        let is_special = self.share != Share::Whole;
        Self { linger_ms: 0, is_special, ..self }
    }

    /// For how long the lease may linger; zero if it may not.
    pub(crate) const fn linger_limit(&self) -> Duration {
        Duration::from_millis(self.linger_ms as u64)
    }

    /// How long a call with these options goes on if it begins now.
    pub(crate) fn patience(&self, now: Instant) -> Patience {
        let of_retry = self.retry.and_then(|retry| retry.timeout);
        let timeout = [self.timeout, of_retry].into_iter().flatten().min();
        let is_patient = self.retry.is_some() && timeout != Some(Duration::ZERO);
        let timeout = timeout.filter(|timeout| !timeout.is_zero());
        Patience { ends: timeout.map_or(Instant::MAX, |timeout| now + timeout), is_patient }
    }

    /// The options of a call that is to end at `ends` and asks the nodes only now; `None` if its
    /// time is over.
    pub(crate) fn until(mut self, ends: Instant, now: Instant) -> Option<Self> {
        if ends < Instant::MAX {
            self.timeout = Some(now.until(ends)).filter(|left| !left.is_zero());
            self.timeout?;
        }
        Some(self)
    }

    /// For a call that waits until it leads: for ever, unless the options set a timeout.
    pub(crate) fn campaigning(self, retry: Retry) -> Self {
        self.announced().patient(Retry { timeout: None, ..retry })
    }

    /// One attempt.
    #[inline]
    pub(crate) fn once(mut self) -> Self {
        self.retry = None;
        self
    }

    /// With the retry of the options, or `retry` if they have none.
    #[inline]
    pub(crate) fn patient(mut self, retry: Retry) -> Self {
        self.retry.get_or_insert(retry);
        self
    }
}

/// A number of slots; more than a lock can have are refused when the call begins.
fn slot_count(slots: usize) -> u8 {
    u8::try_from(slots).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_whose_time_is_over_when_its_turn_comes_asks_no_node() {
        let (second, at) = (Duration::from_secs(1), Instant::from_nanos);
        let options = LockOptions::new(second).timeout(second);
        let left = |ends, now| options.clone().until(ends, now).map(|options| options.timeout);
        assert_eq!(left(at(9), at(7)), Some(Some(Duration::from_nanos(2))));
        assert_eq!(left(at(9), at(9)), None);
        assert_eq!(left(Instant::MAX, at(9)), Some(Some(second)), "as it says itself");
    }

    #[test]
    fn a_call_waits_where_it_has_a_retry_and_its_time_is_not_zero() {
        const fn ms(ms: u64) -> Duration {
            Duration::from_millis(ms)
        }
        let now = Instant::from_nanos(7);
        let patience = |options: LockOptions| {
            let Patience { ends, is_patient } = options.patience(now);
            ((ends < Instant::MAX).then(|| ends.saturating_since(now)), is_patient)
        };
        let options = || LockOptions::new(ms(100));
        let every = Retry::every(ms(10), ms(5));
        assert_eq!(patience(options()), (None, false));
        assert_eq!(patience(options().timeout(ms(9))), (Some(ms(9)), false));
        assert_eq!(patience(options().retry(every)), (None, true));
        assert_eq!(patience(options().retry(every).timeout(ms(9))), (Some(ms(9)), true));
        assert_eq!(
            patience(options().retry(every.timeout(ms(8))).timeout(ms(9))),
            (Some(ms(8)), true)
        );
        assert_eq!(patience(options().retry(every).timeout(ms(0))), (None, false));
        assert_eq!(patience(options().retry(every.timeout(ms(0)))), (None, false));
    }

    #[test]
    fn a_lock_that_cannot_linger_is_refused_and_the_error_says_why() {
        let linger = || LockOptions::new(Duration::from_secs(1)).linger(Duration::from_millis(100));
        let why = |options: LockOptions, is_heard: bool, has_limits: bool| {
            let error = options.check_linger(is_heard, has_limits).err()?;
            let LockError::NoLinger { why } = error else { panic!("{error}") };
            Some(why)
        };
        assert_eq!(why(linger(), true, false), None);
        assert_eq!(why(linger(), false, false), Some(UNHEARD));
        assert_eq!(why(linger().fenced(), true, false), Some(NOT_PASSED_ON));
        assert_eq!(why(linger().announced(), true, false), Some(NOT_PASSED_ON));
        assert_eq!(why(linger(), true, true), Some(HAS_LIMITS));
        assert_eq!(why(LockOptions::new(Duration::from_secs(1)).fenced(), false, true), None);
    }
}
