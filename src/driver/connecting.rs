//! [`Connecting`]: how long `connect` waits for nodes, blocking or not.

use std::time::Duration;

use super::Driver;
use crate::config::Config;
use crate::error::ConnectError;
use crate::time::Instant;

/// A wait until every node is settled, or until `node_timeout` after a quorum is ready.
#[derive(Debug)]
pub(crate) struct Connecting {
    /// Without a quorum by then the wait has failed: only then is it known why each node did not
    /// connect.
    deadline: Instant,
    node_timeout: Duration,
    ready_since: Option<Instant>,
}

impl Connecting {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let deadline = now + config.connect_timeout;
        Self { deadline, node_timeout: config.node_timeout, ready_since: None }
    }

    /// Until when the wait goes on at the latest; `None` once it has succeeded.
    pub(crate) fn goes_on_until(
        &mut self,
        driver: &Driver,
        now: Instant,
    ) -> Result<Option<Instant>, ConnectError> {
        let engine = driver.engine();
        if let Some(error) = engine.connect_error(now) {
            let is_over = engine.is_settled() || self.deadline <= now;
            return if is_over { Err(error) } else { Ok(Some(self.deadline)) };
        }
        let end = *self.ready_since.get_or_insert(now) + self.node_timeout;
        Ok(Some(end).filter(|&end| now < end && !engine.is_settled()))
    }
}
