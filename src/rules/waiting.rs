//! The rules for the order of waiters.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::time::Instant;

rules! { WAITING:
    /// A release wakes the first waiter.
    fn first_to_wake<T>(first: Option<T>) -> Option<T> { first }
    /// A release wakes no waiter.
    NobodyWoken => LostWaiter { None }

    /// A wake carries all waiters behind the waiter that it wakes.
    fn carried_on<T: Default>(rest: T) -> T { rest }
    /// The waiters behind a woken waiter are forgotten.
    ListLost => Order { T::default() }

    /// The call that a wake names tries at once. If it is over, the call that has waited longest
    /// tries.
    fn is_heeded(is_wake: bool) -> bool { is_wake }
    /// A waiter that is woken does nothing.
    WakeIgnored => LostWaiter { false }

    /// A wake for a call of the same client needs no message.
    fn sibling_to_wake<T>(sibling: Option<T>) -> Option<T> { sibling }
    /// A call is not told when another call of its client releases the lock for it.
    SiblingNotWoken => LostWaiter { None }

    /// A message is for the calls that wait for its key, and no others.
    fn is_for_key(of_call: &[u8], of_message: &[u8]) -> bool { of_call == of_message }
    /// A message counts for any lock.
    MessageForAnyKey => LostWaiter { true }

    /// A call that gives up leaves the list, and the other calls of its client stay.
    fn is_struck_off(is_same_client: bool, is_same_call: bool) -> bool {
        is_same_client && is_same_call
    }
    /// A call that gives up takes the other calls of its client off the list.
    SiblingsStruck => LostWaiter { is_same_client }

    /// A call that finds the same token turn after turn stops announcing itself to that token's
    /// client.
    fn is_given_away(is_given_away: bool) -> bool { is_given_away }
    /// A call announces itself to a token's client for as long as nodes have that token.
    GivenAwayToldAgain => Storm { false }

    /// A call that has given up is struck off where it is listed.
    fn is_struck(is_listed: bool) -> bool { is_listed }
    /// The holder ignores the message in which a call says that it has given up.
    GiveUpIgnored => ByTest { false }

    /// A holder that heard of a waiter will wake it.
    fn will_be_woken(is_heard: bool) -> bool { is_heard }
    /// A call treats a holder that was told of it as a holder that was not told.
    AnnouncementUnheard => Order { false }

    /// A call that has just woken a waiter for the key queues behind it.
    fn queues_behind_woken(wakes: bool) -> bool { wakes }
    /// A call that has just woken a waiter races it for the key.
    ReleaserBarges => Order { false }

    /// A call that waits has a timer for its own end.
    fn has_end(deadline: Instant) -> bool { deadline < Instant::MAX }
    /// A call that waits has no timer for its own end.
    WaitWithoutEnd => Overdue { false }

    /// A waiter that no client wakes polls the key by itself.
    fn safety_poll(planned: Instant) -> Instant { planned }
    /// The safety poll of a waiter comes two seconds late.
    PollLate => LostWaiter { planned.plus_millis(2_000) }

    /// The call that has surely waited longer has its turn first, however it was heard of.
    fn is_before(waited_longer: bool) -> bool { waited_longer }
    /// The call that is heard of first has its turn first.
    ListsByArrival => Order { false }

    /// Of two calls that wait for each other, the call that finds out tries again.
    fn is_ring(is_holder_behind: bool) -> bool { is_holder_behind }
    /// Two calls that wait for each other go on waiting.
    RingNotBroken => ByTest { false }

    /// A call that gives up tells the holder that knew of it.
    fn holder_to_tell<T>(told: Option<T>) -> Option<T> { told }
    /// A call that gives up does not tell the holder.
    GiveUpNotTold => ByTest { None }
}
