//! [`Connecting`]: how long a wait for nodes lasts, blocking or not.

use std::time::Duration;

use super::Driver;
use crate::config::Config;
use crate::error::ConnectError;
use crate::time::Instant;

/// A wait for a quorum, and maybe for the other nodes.
#[derive(Debug)]
pub(crate) struct Connecting {
    /// Without a quorum by then the wait has failed: only then is it known why each node did not
    /// connect.
    deadline: Instant,
    /// How long it goes on behind a quorum, for nodes that are not settled.
    rest: Duration,
    /// Whether it goes on where every node is settled and no quorum is left: nodes may come back.
    is_patient: bool,
    ready_since: Option<Instant>,
}

impl Connecting {
    /// Until every node is settled, or until `node_timeout` after a quorum is ready.
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let (deadline, rest) = (now + config.connect_timeout, config.node_timeout);
        Self { deadline, rest, is_patient: false, ready_since: None }
    }

    /// Until a quorum is ready.
    #[cfg(feature = "shared")]
    pub(crate) const fn until_ready(deadline: Instant) -> Self {
        Self { deadline, rest: Duration::ZERO, is_patient: true, ready_since: None }
    }

    /// Until when the wait goes on at the latest; `None` once it has succeeded.
    pub(crate) fn goes_on_until(
        &mut self,
        driver: &Driver,
        now: Instant,
    ) -> Result<Option<Instant>, ConnectError> {
        let engine = driver.engine();
        if let Some(error) = engine.connect_error(now) {
            let is_hopeless = engine.is_settled() && !self.is_patient;
            let is_over = is_hopeless || self.deadline <= now;
            return if is_over { Err(error) } else { Ok(Some(self.deadline)) };
        }
        let end = *self.ready_since.get_or_insert(now) + self.rest;
        Ok(Some(end).filter(|&end| now < end && !engine.is_settled()))
    }
}
