//! Deterministic simulation: production engines against models of masters, on one virtual clock,
//! with faults by seed and a judge who knows the true time.
//!
//! Layer: sans-IO, above `engine` and `embedded`. Run by `tests/simulation.rs` and
//! `tests/mutants.rs`.
//!
//! # How a seed runs
//!
//! 1. `plan` draws the topology, the bounds and the faults that the seed will know.
//! 2. Safety: clients (`client`, `task`) lock, extend, release, give away and die, while
//!    `fault` breaks what may break; at least 60 attempts and 5 faults.
//! 3. All is healed. Everything owed must be paid; then each client must get each key; then
//!    nothing may be left (`healed`).
//!
//! `oracle` judges what holders believed, `watch` what they are told of keys that are taken away. The same seed gives the same run.

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "a test rig: its indices are its own, and a panic is a finding"
)]

mod client;
mod clock;
mod counts;
pub mod exhaustive;
mod fault;
mod hand_over;
mod healed;
mod link;
mod message;
mod net;
mod node;
mod oracle;
mod outcome;
mod plan;
mod random;
mod task;
mod truth;
mod watch;
mod world;

pub use crate::mutant::Mutant;
pub use counts::{Counts, Fault, Path};

/// How one seed ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What must never happen, and did.
    pub violation: Option<String>,
    /// What the run met.
    pub counts: Counts,
}

/// Runs one seed, with `mutant` on if one is given. `trace` is told what happens, line by line.
#[must_use]
pub fn run(seed: u64, mutant: Option<Mutant>, trace: Option<fn(&str)>) -> Report {
    crate::mutant::run_with(mutant, || {
        let (counts, violation) = world::World::new(seed, trace).run();
        Report { violation, counts }
    })
}
