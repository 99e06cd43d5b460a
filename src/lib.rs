//! Redbolt: a Redlock client at the floor of latency.

pub mod time;

mod acquire;
mod address;
mod command;
mod config;
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
pub use config::{Admission, Config, RestartGuard, Retry, Wait};
pub use error::{
    Ballot, Cause, ConfigError, ConnectError, ExtendError, LockError, UnlockError, Unlocked, Vote,
};
pub use quorum::Quorum;
pub use token::LockToken;
