//! The harness that the tests of all crates share, and clients of its servers.

mod clients;
mod looped;
#[cfg(feature = "tracing")]
mod subscribing;

pub(crate) use clients::{
    Clients, all_vote, causes, cycle, fresh_config, given_away, no_quorum, settled_nodes, taken,
    wait_released,
};
pub(crate) use looped::Looped;
pub(crate) use redbolt_rig::*;
#[cfg(feature = "tracing")]
pub(crate) use subscribing::log_to;

/// The root of the repository.
pub(crate) fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate is two folders below")
}
