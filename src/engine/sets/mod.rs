//! Several keys under one lease, and locks with several slots.
//!
//! A set is no lock of its own. Each of its keys is an ordinary attempt with its own token, and then
//! an ordinary lease, in its own slot. So exclusion, ownership, debts and fences are those of single
//! keys. This module asks for several keys at once, and makes one result of several.
//!
//! A call asks for all its keys at once. If one is denied, the call keeps the keys that it won before
//! the first denied one, in the order of their bytes. It gives back the others, and waits for that
//! key as any call does. When it has the key, it asks for all that is left at once, and so on.
//!
//! # Invariants
//!
//! - A call for several keys waits for one, and then holds only keys before it in the order of
//!   bytes. All clients share that order, so no calls deadlock. [`slots`] has the invariant for
//!   locks with slots.
//! - A set ends with the first of its keys to end. At the hand-over the engine judges it by that key.
//! - The caller knows a set by the id of its first lease, and never sees the ids of the others.

mod adopt;
mod call;
mod core;
mod lease;
mod members;
mod results;
mod slots;

pub(crate) use call::in_order;
pub(super) use core::Sets;
