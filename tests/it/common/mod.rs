//! The harness: real servers to test against, and a plain connection that knows nothing of the
//! crate.
//!
//! [`RealServer`] is one process on a port and a directory of its own; [`Wire`] sends requests and
//! takes raw replies; [`Kind`] names the servers, [`Pair`] holds one against the model of its
//! flavor, [`Cluster`] is the nodes of one client.

#[cfg(feature = "tls")]
mod authority;
mod cluster;
mod kind;
mod pair;
#[cfg(feature = "tls")]
mod relay;
mod server;
#[cfg(feature = "tls")]
mod tls_server;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "tls")]
pub(crate) use authority::{Authority, LOCAL, Signed};
pub(crate) use cluster::{
    Cluster, FOREIGN, PATIENCE, SLACK, TTL, causes, cycle, ends_within, eventually, fresh_config,
    ms, no_quorum, taken, timed,
};
pub(crate) use kind::{Kind, available_kinds, kind_or_skip, skip};
pub(crate) use pair::{EXTEND, Pair, RELEASE, Request, words};
#[cfg(feature = "tls")]
pub(crate) use relay::{Relay, Trick};
pub(crate) use server::RealServer;
#[cfg(feature = "tls")]
pub(crate) use tls_server::{TLS_KINDS, TlsServer};
pub(crate) use wire::{Wire, port_of, request};

/// Sets a flag at its end: threads that go on until then end also where an assertion fails.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A point on the clock that the nodes' deadlines are counted on.
pub(crate) fn now() -> redbolt::Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("the clock began at boot");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are positive");
    redbolt::Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}
