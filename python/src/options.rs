//! What one call for a lock asks for.

use std::time::Duration;

use redbolt::{LockOptions, Retry};

use crate::failure::Failure;
use crate::time::duration;

/// The keyword arguments of a call, as Python gave them.
pub(crate) struct Asked {
    pub(crate) ttl: f64,
    pub(crate) timeout: Option<f64>,
    pub(crate) min_validity: f64,
    pub(crate) keep_alive: bool,
    pub(crate) fenced: bool,
    pub(crate) slots: Option<usize>,
    pub(crate) read: Option<usize>,
    pub(crate) write: Option<usize>,
    pub(crate) linger: f64,
}

impl Asked {
    /// The options; `retry` is the client's own.
    pub(crate) fn options(&self, retry: Retry) -> Result<LockOptions, Failure> {
        let mut options = LockOptions::new(duration("ttl", self.ttl)?);
        if let Some(timeout) = self.timeout {
            let mut own = retry;
            own.timeout =
                if timeout == f64::INFINITY { None } else { Some(duration("timeout", timeout)?) };
            options = options.retry(own);
        }
        options = options.min_validity(duration("min_validity", self.min_validity)?);
        let linger = duration("linger", self.linger)?;
        if linger > Duration::ZERO {
            options = options.linger(linger);
        }
        if self.keep_alive {
            options = options.keep_alive();
        }
        if self.fenced {
            options = options.fenced();
        }
        match (self.slots, self.read, self.write) {
            (None, None, None) => Ok(options),
            (Some(slots), None, None) => Ok(options.slots(slots)),
            (None, Some(readers), None) => Ok(options.read(readers)),
            (None, None, Some(readers)) => Ok(options.write(readers)),
            _ => Err(Failure::argument("slots, read and write exclude each other")),
        }
    }
}
