//! Integration tests, in one binary: a file for each promise, and the harness they share.
//!
//! Real servers come from `target/servers` (laid by `tests/servers.sh target/servers`), or from the
//! directory that the environment variable `REDBOLT_SERVERS` names. A test whose server is missing
//! prints `SKIPPED <test>: <why>`; with `CI=true` it fails.

#![cfg(test)]

mod acl;
mod acquire;
mod broken_fences;
mod broken_transfers;
mod circles;
mod client;
mod code;
mod common;
mod concurrency;
mod connecting;
mod costs;
mod debts;
mod descriptors;
mod dialects;
mod drops;
mod election;
mod endings;
mod exchange;
mod extend;
mod faulty_nodes;
mod fences;
mod figures;
mod forks;
mod futures;
#[cfg(feature = "fuzzing")]
mod fuzz_corpus;
mod given_away;
mod greeting;
#[cfg(feature = "sim")]
mod hands;
mod health;
mod hold;
mod lingering;
#[cfg(feature = "tracing")]
mod log;
mod loss;
#[cfg(feature = "metrics")]
mod metrics;
mod overrides;
mod pages;
mod peers_replayed;
mod prefix;
mod promoted;
mod public_names;
mod query;
mod queues;
mod retry;
mod secrets;
mod sentences;
mod sets;
mod slots;

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
