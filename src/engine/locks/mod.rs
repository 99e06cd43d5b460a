//! Locks over the nodes: attempts, their votes, leases, extensions and releases.
//!
//! Layer: above the nodes and the rounds, below waiting.

pub(super) mod attempt;
mod awaiting;
mod check;
mod claims;
mod decided;
mod detach;
mod extend;
mod fence_answers;
mod fences;
mod fencing;
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
mod query;
mod release;
#[cfg(feature = "metrics")]
pub(super) mod series;
pub(super) mod settings;
pub(super) mod slot;
pub(super) mod state;
pub(super) mod steps;
pub(super) mod timers;
pub(crate) mod view;
mod votes;
