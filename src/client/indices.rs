//! The indices of the table: each type names a place in one list, and the compiler tells them
//! apart.

use crate::slab::index_type;

index_type! {
    /// A call under way.
    pub(crate) CallIndex
}

index_type! {
    /// The queue of a key.
    pub(crate) QueueIndex
}
