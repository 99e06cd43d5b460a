//! Integration tests, in one binary: a file for each promise, and the harness they share.
//!
//! Real servers come from `target/servers` (laid by `tests/servers.sh target/servers`) or from the
//! directory that the environment variable `REDBOLT_SERVERS` names. A test whose server is not
//! there prints `SKIPPED <test>: <why>`; with `CI=true` it fails.

mod acl;
mod acquire;
mod batch;
mod broken_fences;
mod broken_transfers;
mod circles;
mod code;
mod common;
mod concurrency;
mod connecting;
mod debts;
mod descriptors;
mod dialects;
mod drops;
#[cfg(feature = "shared")]
mod election;
#[cfg(feature = "shared")]
mod endings;
mod extend;
mod faulty_nodes;
#[cfg(feature = "shared")]
mod fences;
#[cfg(feature = "fuzzing")]
mod fuzz_corpus;
#[cfg(feature = "shared")]
mod given_away;
mod greeting;
#[cfg(feature = "sim")]
mod hands;
mod health;
mod hold;
#[cfg(feature = "shared")]
mod lingering;
#[cfg(feature = "tracing")]
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod overrides;
mod pages;
mod peers_replayed;
mod prefix;
mod promoted;
mod public_names;
#[cfg(feature = "shared")]
mod query;
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
mod transfers;
mod unlock;
mod waiting;
mod waiting_faults;
