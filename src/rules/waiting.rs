//! Whose turn it is.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::time::Instant;

rules! { WAITING:
    /// A release wakes the first waiter.
    fn first_to_wake<T>(first: Option<T>) -> Option<T> { first }
    /// A release wakes nobody.
    NobodyWoken => LostWaiter { None }

    /// A wake carries all waiters behind the one that it wakes.
    fn carried_on<T: Default>(rest: T) -> T { rest }
    /// The waiters behind the one that is woken are forgotten.
    ListLost => Order { T::default() }

    /// The call that a wake names tries at once; if it is over, the call that has waited longest.
    fn is_heeded(is_wake: bool) -> bool { is_wake }
    /// A waiter that is woken does nothing.
    WakeIgnored => LostWaiter { false }

    /// A wake for a call of the same client needs no message.
    fn sibling_to_wake<T>(sibling: Option<T>) -> Option<T> { sibling }
    /// A call whose turn comes by the release of another of its client is not told.
    SiblingNotWoken => LostWaiter { None }

    /// A message is for the calls that wait for its key, and no others.
    fn is_for_key(of_call: &[u8], of_message: &[u8]) -> bool { of_call == of_message }
    /// A message is taken for any lock.
    MessageForAnyKey => LostWaiter { true }

    /// A call that gives up leaves the list, and the other calls of its client stay.
    fn is_struck_off(is_same_client: bool, is_same_call: bool) -> bool {
        is_same_client && is_same_call
    }
    /// A call that gives up takes the others of its client off the list.
    SiblingsStruck => LostWaiter { is_same_client }

    /// A call that was given the turn again and again, and found the same token, tells its client no more.
    fn is_given_away(is_given_away: bool) -> bool { is_given_away }
    /// A call tells the client that drew a token for as long as nodes have it.
    GivenAwayToldAgain => Storm { false }

    /// A call that has given up is struck off where it is listed.
    fn is_struck(is_listed: bool) -> bool { is_listed }
    /// A message that a call gives up changes nothing.
    GiveUpIgnored => ByTest { false }

    /// A holder that heard of a waiter will wake it.
    fn will_be_woken(is_heard: bool) -> bool { is_heard }
    /// A holder that was told is taken for one that was not.
    AnnouncementUnheard => Order { false }

    /// A call that has just woken a waiter for the key queues behind it.
    fn queues_behind_woken(wakes: bool) -> bool { wakes }
    /// A call that has just woken a waiter races it for the key.
    ReleaserBarges => Order { false }

    /// A call that waits has a timer for its own end.
    fn has_end(deadline: Instant) -> bool { deadline < Instant::MAX }
    /// A call that waits has no timer for its own end.
    WaitWithoutEnd => Overdue { false }

    /// A waiter that nobody wakes looks at the key by itself.
    fn safety_poll(planned: Instant) -> Instant { planned }
    /// The safety poll of a waiter comes two seconds late.
    PollLate => LostWaiter { planned.plus_millis(2_000) }

    /// The call that has surely waited longer has its turn first, however it was heard of.
    fn is_before(waited_longer: bool) -> bool { waited_longer }
    /// The call that is heard of first has its turn first.
    ListsByArrival => Order { false }

    /// Of two that wait for each other, the one that finds out tries again.
    fn is_ring(is_holder_behind: bool) -> bool { is_holder_behind }
    /// Two that wait for each other go on waiting.
    RingNotBroken => ByTest { false }

    /// A call that gives up says so to the holder that it told of itself.
    fn holder_to_tell<T>(told: Option<T>) -> Option<T> { told }
    /// A call that gives up does not say so.
    GiveUpNotTold => ByTest { None }
}
