//! Several keys under one lease.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::time::Instant;

rules! { SETS:
    /// A denied call keeps only its keys in front of the denied key, which is at `place`.
    fn keys_kept(place: usize) -> usize { place }
    /// A call waits for one key and keeps all others.
    KeysBehindKept => Starved { usize::MAX }

    /// A set ends with the first of its keys to end.
    fn first_to_end(ends: Instant, other: Instant) -> Instant { ends.min(other) }
    /// A set ends with the last of its keys.
    SetEndsWithLastKey => NoGround { ends.max(other) }

    /// A set is lost with one of its keys.
    fn is_lost_with(is_key_lost: bool) -> bool { is_key_lost }
    /// A set ignores the loss of every key but its first.
    LossOfOneKeyIgnored => ByTest { false }

    /// A call that ends without its set gives back the keys that it has won.
    fn is_given_back(is_held: bool) -> bool { is_held }
    /// The keys of a call that failed stay held.
    PartOfSetKept => Orphan { false }

    /// In a batch a node grants the key that it names, and no other.
    fn is_granted_in_batch(named: Option<usize>, place: usize) -> bool { named == Some(place) }
    /// The nodes that granted any slot are counted together, as counting semaphores do.
    SlotsCountedTogether => TwoHolders { let _ = place; named.is_some() }

    /// A writer that waits for the gate gives back its slots from this place on.
    fn slots_kept_without_gate() -> usize { 0 }
    /// A writer keeps its slots while it waits for the gate.
    SlotsKeptWithoutGate => ByTest { usize::MAX }
}
