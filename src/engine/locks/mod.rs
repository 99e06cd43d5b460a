//! Locks over the nodes: attempts, their votes, leases, extensions and releases.
//!
//! Layer: above the nodes and the rounds, beside waiting.

pub(super) mod attempt;
pub(super) mod batch;
mod batching;
pub(super) mod core;
mod extend;
mod fences;
mod keeping;
mod leases;
pub(super) mod offers;
pub(super) mod op;
pub(crate) mod prefix;
mod propose;
mod query;
mod release;
pub(super) mod settings;
pub(super) mod slot;
pub(super) mod timers;
pub(crate) mod view;
