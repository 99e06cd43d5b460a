//! All operations over all nodes, without a socket or a clock: bytes and times in, bytes and events
//! out.
//!
//! Layer: the top of the sans-IO part. [`crate::driver`] or a loop of your own drives it.
//!
//! # How to drive it
//!
//! 1. Report what happened: [`Engine::handle_connected`], [`Engine::handle_lost`],
//!    [`Engine::handle_bytes`] for all bytes of the sockets, and only then
//!    [`Engine::handle_timeout`]. The engine must not judge a node before it has the node's bytes.
//! 2. Submit: [`Engine::try_lock`], [`Engine::extend`], [`Engine::unlock`], each with a clock
//!    reading from just before.
//! 3. Drain: [`Engine::poll_event`] with a new clock reading, [`Engine::poll_connection`], and
//!    [`Engine::drain_output`], or [`Engine::output`], for the nodes of [`Engine::poll_writes`]. If
//!    you show deadlines and votes to others, [`Engine::poll_change`] names the leases that
//!    changed.
//! 4. Come back at [`Engine::next_deadline`], or when a socket is ready.
//!
//! # Contract
//!
//! - `now` comes from a clock that runs on while the machine is suspended.
//! - [`Engine::handle_bytes`] needs a clock reading from after the bytes: times in them, such as a
//!   server's age, count from it. All other calls need a reading from just before them. For
//!   [`Engine::handle_timeout`] it may be from before the sockets were read, because that only
//!   gives the nodes more time.
//! - The same inputs give the same outputs: all randomness comes from the seed.
//!
//! # Invariants
//!
//! - A SET goes to a node behind every release of the same key that this client owes that node.
//! - An event says that a lease is held only if it still is at the time given to `poll_event`.
//! - Each operation ends with one event, whatever the nodes do.

mod calls;
mod core;
mod course;
mod door;
pub(crate) mod event;
mod exchange;
mod happenings;
mod inbound;
pub(crate) mod locks;
mod look;
mod nodes;
mod sets;
#[cfg(test)]
mod tests;
mod transfers;
mod wait;

#[cfg(feature = "metrics")]
pub use crate::histogram::Histogram;
pub use crate::node::Connection;
#[cfg(any(test, feature = "sim"))]
pub(crate) use crate::node::Room;
pub use core::Engine;
pub(crate) use event::Notice;
pub use event::{Event, LostCause};
#[cfg(feature = "metrics")]
pub use happenings::counts::Series;
pub use locks::op::OpId;
pub(crate) use locks::prefix::Prefix;
pub use locks::slot::LeaseId;
pub(crate) use locks::view::NodeHealth;
#[cfg(any(test, feature = "metrics", feature = "sim"))]
pub(crate) use locks::view::NodeState;
pub(crate) use sets::in_order;
