//! The statements of `docs/fencing.md`, taken from its text, against the real resources. Each
//! resource refuses a stale writer, and accepts a writer with the same fence.
//!
//! PostgreSQL comes from `target/servers` (laid by `tests/postgres.sh target/servers`), or from the
//! directory that the environment variable `REDBOLT_SERVERS` names, as the other servers do. A test
//! whose server is missing prints `SKIPPED <test>: <why>`; with `CI=true` it fails.

mod file;
mod guide;
mod memory;
mod postgres;
mod postgres_server;
mod psql;
mod redis;
mod sql;
mod sqlite;
