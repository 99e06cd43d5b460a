//! Locks over the nodes: attempts, their votes, leases, extensions and releases.
//!
//! Layer: above the nodes and the rounds, below waiting.

mod accept;
mod arriving;
pub(super) mod attempt;
mod check;
mod claims;
pub(super) mod core;
mod decided;
mod detach;
mod extend;
mod fences;
mod gate;
pub(super) mod handover;
pub(super) mod happening;
mod heir;
pub(super) mod keep;
mod keep_alive;
mod ladder;
mod leases;
mod limits;
#[cfg(feature = "tracing")]
mod log;
pub(super) mod observe;
pub(super) mod offers;
pub(super) mod op;
pub(crate) mod prefix;
mod propose;
mod query;
mod release;
#[cfg(feature = "metrics")]
pub(super) mod series;
pub(super) mod settings;
pub(super) mod slot;
pub(super) mod steps;
pub(super) mod timers;
pub(crate) mod view;
mod votes;
