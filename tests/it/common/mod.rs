//! The harness: that of all crates' tests, and clients of its servers.

mod clients;

pub(crate) use clients::{Clients, causes, cycle, fresh_config, no_quorum, taken};
pub(crate) use redbolt_rig::*;
