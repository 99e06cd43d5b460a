//! Deterministic simulation: production engines against models of masters, on one virtual clock,
//! with faults by seed and a judge that knows the true time.
//!
//! Layer: sans-IO, above `engine`; its servers are the model of `redbolt-embedded`.
//! Run by `tests/simulation.rs` and `tests/mutants.rs`.
//!
//! # How a seed runs
//!
//! 1. `plan` draws the topology, the bounds and the faults that may happen.
//! 2. Safety: clients (`client`, `task`) lock, extend, release, give away and die, while `fault`
//!    breaks what may break. It ends after 60 attempts, 16 leases and the faults that the plan
//!    wants. It ends at the latest after 80 rounds of `fault`, or 1,500 attempts.
//! 3. All is healed. Clients must pay all debts, then each client must get each key, and then
//!    nothing may be left (`healed`).
//!
//! `oracle` judges what holders believed, and `truth` what that belief stands on. `ledger` judges
//! which client deletes which token, `elections` the claims of leaders, and `cost` the cost of
//! waiting. `deadline` judges that everything ends in time, and `unlike` clients of different
//! settings. The same seed gives the same run.
//!
//! [`exhaustive`] plays two clients in every order; seeds play only some orders. [`hands`] counts
//! the cost of a change of hands.
//!
//! A fuzzer's bytes may make the choices instead ([`run_given`]): then nodes lie as well, and
//! clients call out of turn (`stray`).

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "a test rig: its indices are its own, and a panic is a finding"
)]

mod addresses;
mod client;
mod clock;
mod closing;
mod cost;
mod counts;
mod deadline;
mod elections;
pub mod exhaustive;
mod fault;
mod hand_over;
pub mod hands;
mod healed;
mod ledger;
mod link;
mod message;
mod net;
mod node;
mod oracle;
mod outcome;
mod plan;
mod random;
mod rare;
mod sets;
mod shared;
mod stray;
mod task;
mod truth;
mod unlike;
mod world;

pub use crate::rules::{Kind, Mutant};
pub use counts::{Counts, Fault, Path, Setting};
pub use oracle::Oracle;
pub use random::Random;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::config::Config;

/// A violation: something that must never happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The kind of the violation.
    pub kind: Kind,
    /// What happened, to which client or node, and when.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// How one seed ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The first violation, if there was one.
    pub violation: Option<Violation>,
    /// The counts of the run.
    pub counts: Counts,
}

/// A client with this configuration takes `clock` for the system's wall clock: the time since the
/// beginning of 1970.
#[must_use]
pub const fn with_wall_clock(mut config: Config, clock: fn() -> Duration) -> Config {
    config.wall_clock = Some(clock);
    config
}

/// Runs one seed, with `mutant` on if one is given. `trace` gets a line for each event.
#[must_use]
pub fn run(seed: u64, mutant: Option<Mutant>, trace: Option<fn(&str)>) -> Report {
    run_by(Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed), mutant, trace)
}

/// Runs as [`run`] does, but `bytes` make the choices instead of a seed. Faults end with the bytes.
#[must_use]
pub fn run_given(bytes: &[u8], mutant: Option<Mutant>, trace: Option<fn(&str)>) -> Report {
    run_by(Random::given(bytes), mutant, trace)
}

fn run_by(random: Random, mutant: Option<Mutant>, trace: Option<fn(&str)>) -> Report {
    let world = || world::World::new(random, trace).run();
    let run = || catch_unwind(AssertUnwindSafe(world));
    let (counts, violation) = crate::rules::run_with(mutant, run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.unwrap_or_else(|| "an assertion".to_owned());
        (Counts::default(), Some(Violation { kind: Kind::Panic, text }))
    });
    Report { violation, counts }
}
