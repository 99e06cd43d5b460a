//! The indices of the table: each names a place in one list, and is not taken for another.

use crate::slab::index_type;

index_type! {
    /// A call under way.
    pub(crate) CallIndex
}

index_type! {
    /// The queue of a key.
    pub(crate) QueueIndex
}
