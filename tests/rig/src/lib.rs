//! The tools that the tests of all crates share: real servers, certificates, and a plain connection
//! that knows nothing of Redbolt.
//!
//! [`RealServer`] is one process with its own port and directory. [`Wire`] sends requests and reads
//! raw replies. [`Kind`] names the servers, and [`Cluster`] is the nodes of one client.
//!
//! Real servers come from `target/servers` (laid by `tests/servers.sh target/servers`), or from the
//! directory that the environment variable `REDBOLT_SERVERS` names. A test whose server is missing
//! prints `SKIPPED <test>: <why>`; with `CI=true` it fails.

#![expect(
    missing_docs,
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "for this workspace's tests alone: what goes wrong here fails the test"
)]

mod authority;
mod cluster;
mod door;
mod kind;
mod own_test;
mod ports;
mod relay;
mod server;
mod tls_server;
mod wait;
mod wire;

pub use authority::{Authority, LOCAL, Signed};
pub use cluster::{Cluster, FOREIGN};
pub use door::Door;
pub use kind::{Kind, available_kinds, kind_or_skip, on_each_kind, program_or_skip, skip};
pub use own_test::own_test;
pub use ports::free_port;
pub use relay::{Relay, Trick};
pub use server::{RealServer, directory, is_stopped};
pub use tls_server::{TLS_KINDS, TlsServer};
pub use wait::{
    PATIENCE, SLACK, StopAtEnd, TTL, ends_within, eventually, ms, now, soon_after, timed,
    uninterrupted,
};
pub use wire::{Wire, port_of, request};
