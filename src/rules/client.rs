//! The rules for a lease that goes from one caller of a client to the next.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::time::Instant;

rules! { CLIENT:
    /// A lease with a fence goes to no other holder: the next holder needs a higher fence.
    fn needs_own_fence(is_fenced: bool) -> bool { is_fenced }
    /// The next holder in a client gets a lease with the fence of the last holder.
    FenceHandedOn => ByClientTest { false }

    /// Each leader has a term of its own.
    fn needs_own_term(is_announced: bool) -> bool { is_announced }
    /// The next leader in a client gets a lease with the term of the last leader.
    TermHandedOn => ByClientTest { false }

    /// A lease is handed on only while no call of its last holder works on it.
    fn is_idle(is_idle: bool) -> bool { is_idle }
    /// A lease is handed on while it is being extended.
    BusyLeaseHandedOn => ByClientTest { true }

    /// A lease is not handed on once its token is known outside: any program that knows the token
    /// can release the lease.
    fn is_known_elsewhere(is_known: bool) -> bool { is_known }
    /// A lease is handed on although its token is known outside.
    KnownTokenHandedOn => ByClientTest { false }

    /// A lease is handed on only if it lasts as long as the next holder asks.
    fn is_too_short_to_hand_on(is_short: bool) -> bool { is_short }
    /// A lease is handed on although too little of it is left.
    SpentLeaseHandedOn => ByClientTest { false }

    /// A lease does not linger while another client waits for it.
    fn ends_lingering(is_waited_for: bool) -> bool { is_waited_for }
    /// A lease goes on lingering though another client waits.
    LingersWhileWaitedFor => LostWaiter { false }

    /// A lease for which another client waits does not begin to linger.
    fn may_linger(is_free: bool) -> bool { is_free }
    /// A lease begins to linger although another client waits for it.
    LingersThoughWaitedFor => ByClientTest { true }

    /// A lease is taken again only a limited number of times: then other clients get their turn.
    fn has_turns_left(has_turns: bool) -> bool { has_turns }
    /// A lease is taken again any number of times.
    RetakenWithoutEnd => ByClientTest { true }

    /// An extension with another TTL ends a lease's time to linger, because that time follows from
    /// the TTL.
    fn ends_time_to_linger(is_other_ttl: bool) -> bool { is_other_ttl }
    /// A lease lingers by a TTL that it no longer has.
    LingersByOldTtl => ByClientTest { false }

    /// A lease that is lost while it lingers is not taken again.
    fn is_known_lost(is_lost: bool) -> bool { is_lost }
    /// A lease that is lost is taken again.
    LostLeaseRetaken => ByClientTest { false }

    /// A client that ends releases the leases that linger.
    fn ends_with_client(lingers: bool) -> bool { lingers }
    /// A lease goes on lingering although its client ends.
    LingersBeyondClient => ByClientTest { false }

    /// A lease lingers no longer than its time.
    fn linger_ends(until: Instant) -> Instant { until }
    /// A lease is taken again although its time to linger is over.
    LingersBeyondItsTime => ByClientTest { Instant::MAX }

    /// A lease that lingers is taken again only if it lasts as long as the call asks.
    fn lasts_for_call(is_enough: bool) -> bool { is_enough }
    /// A lease is taken again although too little of it is left.
    SpentLeaseRetaken => ByClientTest { true }

    /// A driving caller wakes no task: the executor may queue that task on the thread that the
    /// caller blocks.
    fn must_leave(waits_for_task: bool) -> bool { waits_for_task }
    /// A driving caller hands out a result that a task waits for.
    DrivingCallerWakesTask => ByClientTest { false }
}
