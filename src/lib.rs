//! Redbolt: a Redlock client at the floor of latency.

pub mod time;

mod acquire;
mod address;
pub mod client;
mod command;
mod config;
pub mod driver;
pub mod engine;
mod error;
mod node;
pub mod quorum;
pub mod resp;
mod round;
mod token;

#[cfg(feature = "embedded")]
pub mod embedded;

pub use acquire::Acquire;
pub use address::{Address, Endpoint};
pub use client::{Client, Held};
pub use config::{Admission, Config, RestartGuard, Retry, Wait};
pub use driver::clock::now;
pub use driver::{Completion, Driver, Lease};
pub use error::{
    Ballot, Cause, ConfigError, ConnectError, ExtendError, LockError, UnlockError, Unlocked, Vote,
};
pub use mio;
pub use quorum::Quorum;
pub use token::LockToken;
