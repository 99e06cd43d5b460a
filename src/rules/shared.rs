//! What goes from one caller of a process to the next.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};

rules! { SHARED:
    /// A lease with a fence goes to no other holder, who needs a higher one.
    fn needs_own_fence(is_fenced: bool) -> bool { is_fenced }
    /// A lease goes to the next holder in a process with the fence of the last.
    FenceHandedOn => BySharedTest { false }
}
