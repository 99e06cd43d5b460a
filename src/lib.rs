//! Redlock at the lowest latency: locks on N independent Redis or Valkey masters, without a Redis
//! client or a runtime in between.
//!
//! A call that takes a lock writes `SET key token NX PX ttl` to every node before it reads any
//! reply. The q-th grant decides. So it costs one round trip to the q-th fastest node, however
//! slow the other nodes are. You get a lease only while a quorum is certain to hold its key, and a
//! failed attempt leaves no key behind.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nodes = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"];
//! let client = redbolt::Client::connect(redbolt::Config::new(nodes)?)?;
//!
//! let mut guard = client.lock("sku:42", Duration::from_secs(10)).wait()?; // or .await?
//! // Right before each effect that needs the lock:
//! if guard.remaining() > Duration::from_millis(100) {
//!     // ...
//! }
//! guard.extend(Duration::from_secs(10)).wait()?;
//! guard.unlock().wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Ways in
//!
//! | you have | take | guide |
//! |---|---|---|
//! | threads, or tasks of any runtime | [`Client`]: calls to block on or to await | [`guide::client`] |
//! | an event loop on mio | [`Driver`](driver::Driver): give it your registry and its events | [`guide::mio_loop`] |
//! | another event loop, or one that never sleeps | [`Driver::standalone`](driver::Driver::standalone): watch one file descriptor | [`guide::other_loops`] |
//! | your own sockets, or none | [`engine::Engine`]: bytes and times in, bytes and events out | [`guide::engine`] |
//! | tests | `Nodes` of the crate `redbolt-embedded`: real TCP nodes in the process | [`guide::testing`] |
//!
//! [`guide::settings`] lists every setting, its range, and when to change it. [`safety`] says what
//! a lease is worth, and on which preconditions.
//!
//! # Layers
//!
//! ```text
//! client       calls from any thread or task, a queue for each key, one I/O thread
//! driver       mio sockets, readiness, the one clock
//! -----------------------------------------------------------------------------------------
//! engine       all operations over all nodes: rounds, leases, retries, debts, timers
//! round        the votes of one attempt               node     one node's conversation
//! command      the bytes of each command, and what an answer means
//! resp         bytes to replies, in place and in linear time
//! ```
//!
//! No layer below the line reads a clock, a socket or the environment: the same input gives the
//! same output. Read `engine/locks/attempt.rs` first, then `round.rs`.
//!
//! # What is promised
//!
//! At most one client holds a key at a time, until the lease's [`deadline`](Lease::deadline), if:
//!
//! - all clients have the same six settings, which [`Config`] names;
//! - each node is an independent master: no replica, no cluster, no proxy in front, `noeviction`;
//! - clocks run at rates that differ by less than [`drift_factor`](Config::drift_factor);
//! - nothing but these clients writes the keys.
//!
//! The client ignores a node that restarts empty until every lock that the node may have lost has
//! expired ([`RestartGuard`]). A process that acts after its deadline is not excluded. Check
//! [`Lease::remaining`] right before every effect, and let the resource refuse a late holder by its
//! fence ([`fence`], [`guide::fencing`]).
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | (none) | client, driver, engine |
//! | `sim` | the simulation that the library is tested with |
//! | `tls` | connections through TLS: `rediss://`, `Config::tls` |
//! | `tracing` | spans and events of locks and nodes |
//! | `metrics` | counts, times and node states, for the `metrics` facade |
//! | `fuzzing` | the bodies of the fuzz targets, for this project's own checks |
//!
//! # Versions
//!
//! [Semantic versioning](https://semver.org), as Cargo reads it. Before 1.0 a minor version may
//! change names and a patch version may not; the changelog lists each change. `redbolt`,
//! `redbolt-cli` and `redbolt-embedded` have the same version. `sim` and `fuzzing` are for this
//! project's own checks and may change at any time.
//!
//! Clients of different versions can share locks, because they lock the same keys by the same
//! commands. Where the number in the names of their channels (`redbolt:3:`) differs, they wait for
//! each other by polling.
//!
//! Redbolt needs Rust 1.88 or later. A minor version may require a later Rust, if that Rust is at
//! least six months old; a patch version never does. Linux is the main platform, and Redbolt also
//! builds for macOS. On Windows the build stops with one compile error.

#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]
// Features get badges on docs.rs. The badge "Unix" is hidden: the text above says it once.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg(hide(unix))))]
// Other systems have no `driver`, so there nothing uses the imports for it. The `expect` leaves
// them one error, instead of a page.
#![cfg_attr(not(unix), expect(unused_imports, reason = "of what is left out"))]

#[cfg(not(unix))]
compile_error!("redbolt needs Unix: it runs on Linux and builds for macOS; on Windows use WSL");

#[cfg(unix)]
pub mod driver;
pub mod engine;
pub mod fence;
#[cfg(unix)]
pub mod inspect;
pub mod safety;

mod address;
mod agreement;
mod beside;
mod checked;
mod claim;
#[cfg(unix)]
mod client;
mod client_name;
mod command;
mod config;
#[cfg(feature = "metrics")]
mod count;
mod error;
mod generator;
mod guards;
#[cfg(feature = "metrics")]
mod histogram;
mod key;
mod leader;
mod lists;
mod node;
mod options;
mod plain;
mod query;
mod quorum;
mod resp;
mod retry;
mod round;
mod rules;
mod slab;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod witness;

#[cfg(feature = "sim")]
pub mod sim;

#[cfg(any(doc, doctest))]
#[cfg_attr(docsrs, doc(auto_cfg = false))]
pub mod guide;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

#[cfg(unix)]
pub use client::{Call, Client, Guard, Observer, wait_all};
#[cfg(unix)]
pub use config::{Config, IdleStrategy};
#[cfg(unix)]
pub use driver::clock::now;
#[cfg(unix)]
pub use driver::lease::Lease;
pub use error::{
    Ballot, Cause, ConfigError, ConnectError, DetachError, ExtendError, LockError, UnlockError,
    Unlocked, Vote,
};
pub use guards::{Admission, FailoverGuard, RestartGuard};
pub use options::LockOptions;
pub use quorum::Quorum;
pub use retry::Retry;
pub use time::Instant;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use token::LockToken;

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the page on observing compile and run.
#[cfg(all(doctest, feature = "metrics", feature = "tracing"))]
#[doc = include_str!("../docs/observing.md")]
struct Observing;
