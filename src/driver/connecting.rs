//! [`Connecting`]: how long a wait for nodes lasts, blocking or not.

use std::time::Duration;

use super::Driver;
use crate::config::Config;
use crate::error::ConnectError;
use crate::time::Instant;

/// The wait lasts a little longer than the nodes' own timers, which say why each did not connect.
const MARGIN: Duration = Duration::from_millis(20);

/// A wait for a quorum, and maybe for the other nodes.
#[derive(Debug)]
pub(crate) struct Connecting {
    /// Without a quorum by this time the wait fails. By the deadline of [`Connecting::new`], each
    /// node has shown why it did not connect.
    deadline: Instant,
    /// How long the wait goes on after a quorum is ready, for nodes that are not settled.
    rest: Duration,
    /// Whether the wait goes on if every node is settled and no quorum is left: nodes may come
    /// back.
    is_patient: bool,
    /// The deadline had passed at the last look, and the driver has made a pass since.
    is_late: bool,
    ready_since: Option<Instant>,
}

impl Connecting {
    /// A wait until every node is settled, or until `node_timeout` after a quorum is ready.
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let deadline = now + config.connect_timeout + MARGIN;
        let rest = config.node_timeout;
        Self { deadline, rest, is_patient: false, is_late: false, ready_since: None }
    }

    /// A wait until a quorum is ready.
    pub(crate) const fn until_ready(deadline: Instant) -> Self {
        let rest = Duration::ZERO;
        Self { deadline, rest, is_patient: true, is_late: false, ready_since: None }
    }

    /// The time at which the wait ends at the latest; `None` once it has succeeded.
    pub(crate) fn goes_on_until(
        &mut self,
        driver: &Driver,
        now: Instant,
    ) -> Result<Option<Instant>, ConnectError> {
        let engine = driver.engine();
        if let Some(error) = engine.connect_error(now) {
            let is_hopeless = engine.is_settled() && !self.is_patient;
            let is_late = std::mem::replace(&mut self.is_late, self.deadline <= now);
            let is_over = is_hopeless || is_late;
            return if is_over { Err(error) } else { Ok(Some(self.deadline)) };
        }
        let end = *self.ready_since.get_or_insert(now) + self.rest;
        Ok(Some(end).filter(|&end| now < end && !engine.is_settled()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_may_say_why_they_did_not_connect_before_the_wait_is_over() {
        let timeout = Duration::from_millis(300);
        let config = Config::new(["127.0.0.1:1"]).unwrap().connect_timeout(timeout);
        let driver = Driver::standalone(config.clone()).unwrap();
        let begin = Instant::from_nanos(1 << 40);
        let mut wait = Connecting::new(&config, begin);
        let mut goes_on = |at| wait.goes_on_until(&driver, at).is_ok_and(|until| until.is_some());
        assert!(goes_on(begin + timeout), "its timer may be due just now");
        let late = begin + timeout * 2;
        assert!(goes_on(late), "the driver has not seen that it is late");
        assert!(!goes_on(late));
    }
}
