//! The harness: that of all crates' tests, and clients of its servers.

mod clients;
#[cfg(feature = "tracing")]
mod subscribing;

#[cfg(feature = "shared")]
pub(crate) use clients::shared_away;
pub(crate) use clients::{Clients, causes, cycle, fresh_config, given_away, no_quorum, taken};
pub(crate) use redbolt_rig::*;
#[cfg(feature = "tracing")]
pub(crate) use subscribing::log_to;
