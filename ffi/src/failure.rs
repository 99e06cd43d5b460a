//! [`Failure`]: every way in which a call can fail, with its code and its message.

use std::fmt;

use redbolt::{Ballot, ConfigError, ConnectError, ExtendError, LockError, UnlockError};

use crate::code::redbolt_code;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Lock(LockError),
    Extend(ExtendError),
    Unlock(UnlockError),
    Config(ConfigError),
    Connect(ConnectError),
    /// An argument is wrong: the text says how.
    Argument(&'static str),
    NotALease,
    Unconfirmed,
    Lost,
    TimedOut,
    Busy,
    Closed,
    Fork,
    Panic,
}

impl Failure {
    pub(crate) fn code(&self) -> redbolt_code {
        match self {
            Self::Lock(error) => of_lock(error),
            Self::Extend(error) => of_extend(error),
            Self::Unlock(error) => of_unlock(*error),
            Self::Config(_) | Self::Connect(ConnectError::Config(_)) => {
                redbolt_code::REDBOLT_INVALID_CONFIG
            }
            Self::Connect(ConnectError::NoQuorum(_)) => redbolt_code::REDBOLT_NO_QUORUM,
            Self::Connect(_) => redbolt_code::REDBOLT_SYSTEM,
            Self::Argument(_) => redbolt_code::REDBOLT_INVALID_ARGUMENT,
            Self::NotALease => redbolt_code::REDBOLT_NOT_A_LEASE,
            Self::Unconfirmed => redbolt_code::REDBOLT_UNCONFIRMED,
            Self::Lost => redbolt_code::REDBOLT_LOST,
            Self::TimedOut => redbolt_code::REDBOLT_TIMED_OUT,
            Self::Busy => redbolt_code::REDBOLT_BUSY,
            Self::Closed | Self::Fork => redbolt_code::REDBOLT_CLOSED,
            Self::Panic => redbolt_code::REDBOLT_PANIC,
        }
    }

    /// What each node said, if nodes were asked.
    pub(crate) fn ballot(&self) -> Option<&Ballot> {
        match self {
            Self::Lock(error) => error.ballot(),
            Self::Extend(error) => error.ballot(),
            Self::Connect(error) => error.ballot(),
            Self::Unlock(_) | Self::Config(_) | Self::Argument(_) | Self::NotALease => None,
            Self::Unconfirmed | Self::Lost | Self::TimedOut | Self::Busy => None,
            Self::Closed | Self::Fork | Self::Panic => None,
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn of_lock(error: &LockError) -> redbolt_code {
    match error {
        LockError::Taken(_) => redbolt_code::REDBOLT_TAKEN,
        LockError::NoQuorum(_) => redbolt_code::REDBOLT_NO_QUORUM,
        LockError::Expired(_) => redbolt_code::REDBOLT_EXPIRED,
        LockError::Lost => redbolt_code::REDBOLT_LOST,
        LockError::Cancelled => redbolt_code::REDBOLT_CANCELLED,
        LockError::Full => redbolt_code::REDBOLT_FULL,
        LockError::Closed => redbolt_code::REDBOLT_CLOSED,
        _ => redbolt_code::REDBOLT_INVALID_ARGUMENT,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn of_extend(error: &ExtendError) -> redbolt_code {
    match error {
        ExtendError::Lost(_) => redbolt_code::REDBOLT_LOST,
        ExtendError::NoQuorum(_) => redbolt_code::REDBOLT_NO_QUORUM,
        ExtendError::Expired => redbolt_code::REDBOLT_EXPIRED,
        ExtendError::LimitReached => redbolt_code::REDBOLT_LIMIT_REACHED,
        ExtendError::Busy => redbolt_code::REDBOLT_BUSY,
        ExtendError::NotOurs => redbolt_code::REDBOLT_NOT_A_LEASE,
        ExtendError::Cancelled => redbolt_code::REDBOLT_CANCELLED,
        ExtendError::Full => redbolt_code::REDBOLT_FULL,
        ExtendError::Closed => redbolt_code::REDBOLT_CLOSED,
        _ => redbolt_code::REDBOLT_INVALID_ARGUMENT,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn of_unlock(error: UnlockError) -> redbolt_code {
    match error {
        UnlockError::NotHeld => redbolt_code::REDBOLT_NOT_HELD,
        UnlockError::NotOurs => redbolt_code::REDBOLT_NOT_A_LEASE,
        UnlockError::Full => redbolt_code::REDBOLT_FULL,
        UnlockError::Closed => redbolt_code::REDBOLT_CLOSED,
        _ => redbolt_code::REDBOLT_INVALID_ARGUMENT,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Extend(error) => error.fmt(f),
            Self::Unlock(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Connect(error) => error.fmt(f),
            Self::Argument(why) => f.write_str(why),
            Self::NotALease => {
                f.write_str("the lease was unlocked or released before, or is another client's")
            }
            Self::Unconfirmed => f.write_str(
                "too few nodes answered to know whether the lock is free: its TTL ends it",
            ),
            Self::Lost => f.write_str("the lease is over: stop the work"),
            Self::TimedOut => f.write_str("the time limit of the wait is over"),
            Self::Busy => f.write_str(
                "another thread is in a call of this object: one thread at a time may use it",
            ),
            Self::Closed => f.write_str("the driver was shut down"),
            Self::Fork => {
                f.write_str("this is the child of a fork: the driver is the parent process's")
            }
            Self::Panic => f.write_str("a fault in redbolt: free this object and make a new one"),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<ExtendError> for Failure {
    fn from(error: ExtendError) -> Self {
        Self::Extend(error)
    }
}

impl From<UnlockError> for Failure {
    fn from(error: UnlockError) -> Self {
        Self::Unlock(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}
