//! [`Failure`]: why a call failed, and its exception.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use redbolt::{
    Ballot, Cause, ConfigError, ConnectError, ExtendError, LockError, UnlockError, Vote,
};

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Lock(LockError),
    Extend(ExtendError),
    Unlock(UnlockError),
    Connect(ConnectError),
    /// An argument is wrong: the text says how.
    Argument(String),
    /// The lease was unlocked before.
    Unlocked,
    /// The work under the lock took longer than the lease.
    Overran,
    /// The client was shut down.
    Closed,
    /// The client or the lease belongs to the parent of a fork.
    Fork,
}

impl Failure {
    pub(crate) fn argument(why: &str) -> Self {
        Self::Argument(why.to_owned())
    }

    /// The name of the exception in `redbolt`.
    fn kind(&self) -> &'static str {
        match self {
            Self::Lock(error) => of_lock(error),
            Self::Extend(error) => of_extend(error),
            Self::Unlock(error) => of_unlock(*error),
            Self::Connect(ConnectError::Config(_)) | Self::Argument(_) => "InvalidArgument",
            Self::Connect(ConnectError::NoQuorum(_)) => "NoQuorum",
            Self::Connect(_) => "System",
            Self::Unlocked => "NotHeld",
            Self::Overran => "Lost",
            Self::Closed | Self::Fork => "Closed",
        }
    }

    fn ballot(&self) -> Option<&Ballot> {
        match self {
            Self::Lock(error) => error.ballot(),
            Self::Extend(error) => error.ballot(),
            Self::Connect(error) => error.ballot(),
            Self::Unlock(_)
            | Self::Argument(_)
            | Self::Unlocked
            | Self::Overran
            | Self::Closed
            | Self::Fork => None,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Lock(error) => error.to_string(),
            Self::Extend(error) => error.to_string(),
            Self::Unlock(error) => error.to_string(),
            Self::Connect(error) => error.to_string(),
            Self::Argument(why) => why.clone(),
            Self::Unlocked => "the lease was unlocked before".to_owned(),
            Self::Overran => "the lease ended before the work did".to_owned(),
            Self::Closed => "the client was shut down".to_owned(),
            Self::Fork => {
                "the lease or client is the parent process's: only the parent may use it".to_owned()
            }
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn of_lock(error: &LockError) -> &'static str {
    match error {
        LockError::Taken(_) => "Taken",
        LockError::NoQuorum(_) => "NoQuorum",
        LockError::Expired(_) => "Expired",
        LockError::Lost => "Lost",
        LockError::Full => "Full",
        LockError::Cancelled | LockError::Closed => "Closed",
        _ => "InvalidArgument",
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn of_extend(error: &ExtendError) -> &'static str {
    match error {
        ExtendError::Lost(_) => "Lost",
        ExtendError::NoQuorum(_) => "NoQuorum",
        ExtendError::Expired => "Expired",
        ExtendError::LimitReached => "LimitReached",
        ExtendError::Busy => "Busy",
        ExtendError::NotOurs => "NotHeld",
        ExtendError::Full => "Full",
        ExtendError::Closed => "Closed",
        _ => "InvalidArgument",
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn of_unlock(error: UnlockError) -> &'static str {
    match error {
        UnlockError::NotHeld | UnlockError::NotOurs => "NotHeld",
        UnlockError::Full => "Full",
        UnlockError::Closed => "Closed",
        _ => "InvalidArgument",
    }
}

/// The answer of a node, in one word.
fn answer(vote: Vote) -> &'static str {
    match vote {
        Vote::Granted => "granted",
        Vote::Denied => Cause::Held.name(),
        Vote::Failed(cause) | Vote::Unknown(cause) => cause.name(),
        _ => Cause::OddReply.name(),
    }
}

/// The exception's class, from the package's own file.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let import = || py.import("redbolt._errors").map(Bound::unbind);
    let errors = ERRORS.get_or_try_init(py, import)?;
    Ok(errors.bind(py).getattr(name)?.cast_into::<PyType>()?)
}

impl Failure {
    /// The exception itself.
    pub(crate) fn exception(&self, py: Python<'_>) -> PyErr {
        let votes = self.ballot().map(Ballot::votes).into_iter().flatten();
        let votes: Vec<_> = votes.map(|(node, vote)| (node, answer(vote))).collect();
        let made = || {
            let votes = PyTuple::new(py, votes)?;
            class(py, self.kind())?.call1((self.message(), votes))
        };
        made().map_or_else(|error| error, PyErr::from_value)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::try_attach(|py| failure.exception(py))
            .unwrap_or_else(|| PyRuntimeError::new_err("the interpreter has ended"))
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<ExtendError> for Failure {
    fn from(error: ExtendError) -> Self {
        // Only the end of its lease cancels an extension here.
        if matches!(error, ExtendError::Cancelled) { Self::Unlocked } else { Self::Extend(error) }
    }
}

impl From<UnlockError> for Failure {
    fn from(error: UnlockError) -> Self {
        Self::Unlock(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Connect(error.into())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}
