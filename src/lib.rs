//! Redbolt: a Redlock client at the floor of latency.

pub mod time;

pub mod resp;

#[cfg(feature = "embedded")]
pub mod embedded;
