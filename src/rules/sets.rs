//! Several keys under one lease.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::time::Instant;

rules! { SETS:
    /// A call that is denied keeps only its keys before the denied one, whose place this is.
    fn keys_kept(place: usize) -> usize { place }
    /// A call waits for one key and keeps all others.
    KeysBehindKept => Starved { usize::MAX }

    /// A set ends with the first of its keys to end.
    fn first_to_end(ends: Instant, other: Instant) -> Instant { ends.min(other) }
    /// A set ends with the last of its keys.
    SetEndsWithLastKey => NoGround { ends.max(other) }

    /// A set is lost with one of its keys.
    fn is_lost_with(is_key_lost: bool) -> bool { is_key_lost }
    /// The loss of a key behind the first is the set's secret.
    LossOfOneKeyIgnored => ByTest { false }

    /// A call that ends without its set gives back what it has won of it.
    fn is_given_back(is_held: bool) -> bool { is_held }
    /// The keys of a call that failed stay held.
    PartOfSetKept => Orphan { false }
}
