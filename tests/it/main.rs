//! Integration tests, in one binary: a file for each promise, and the harness they share.
//!
//! Real servers come from `target/servers` (laid by `tests/servers.sh target/servers`) or from the
//! directory that the environment variable `REDBOLT_SERVERS` names. A test whose server is not
//! there prints `SKIPPED <test>: <why>`; with `CI=true` it fails.

mod acl;
mod acquire;
mod batch;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod cli_bench;
#[cfg(feature = "cli")]
mod cli_doctor;
#[cfg(feature = "cli")]
mod cli_lock;
#[cfg(feature = "cli")]
mod cli_look;
#[cfg(feature = "cli")]
mod cli_run;
#[cfg(feature = "cli")]
mod cli_servers;
#[cfg(feature = "cli")]
mod cli_several;
#[cfg(all(feature = "cli", feature = "tls"))]
mod cli_tls;
#[cfg(feature = "cli")]
mod cli_usage;
#[cfg(feature = "cli")]
mod cli_watch;
mod common;
mod concurrency;
mod connecting;
mod debts;
#[cfg(feature = "cli")]
mod deployed;
#[cfg(feature = "cli")]
mod descriptors;
mod dialects;
mod drops;
#[cfg(feature = "shared")]
mod endings;
mod extend;
mod faulty_nodes;
#[cfg(feature = "fuzzing")]
mod fuzz_corpus;
mod greeting;
mod health;
mod hold;
#[cfg(feature = "tracing")]
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod overrides;
mod peers_replayed;
mod prefix;
mod promoted;
mod public_names;
#[cfg(feature = "cli")]
mod replacing;
mod retry;
mod secrets;
#[cfg(feature = "shared")]
mod shared;
#[cfg(feature = "shared")]
mod shared_costs;
#[cfg(feature = "shared")]
mod shared_futures;
#[cfg(feature = "shared")]
mod shared_loss;
#[cfg(feature = "shared")]
mod shared_queues;

mod tidy;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
#[cfg(feature = "tracing")]
mod trace;
mod unlock;
mod waiting;
mod waiting_faults;
mod watch;
