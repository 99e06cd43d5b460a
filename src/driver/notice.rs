//! Notices about nodes: to the caller and, with the feature `tracing`, to the log.

use super::core::Driver;
use crate::engine::Notice;

impl Driver {
    /// The next notice about a node for people: why the node does not vote, or that it votes again.
    /// The driver reports each cause once, however many locks fail by it. It keeps the last notice
    /// of each node until the caller takes it.
    ///
    /// With the feature `tracing` the driver also logs it, at the end of the same pass, under the
    /// target `redbolt`. It logs one `error` event per cause (`warn` if the cause may pass by
    /// itself), and one `info` event when the node votes again.
    pub fn notice(&mut self) -> Option<Notice> {
        #[cfg(feature = "tracing")]
        {
            self.log_notices();
            let node = self.logged.into_iter().next()?;
            self.logged.remove(node);
            self.engine.last_notice(node)
        }
        #[cfg(not(feature = "tracing"))]
        self.engine.poll_notice()
    }

    #[cfg(feature = "tracing")]
    pub(super) fn log_notices(&mut self) {
        while let Some(notice) = self.engine.poll_notice() {
            let (node, cause) = (notice.name(), notice.cause.text());
            if notice.is_well() {
                tracing::info!(target: "redbolt", node, "node votes again");
            } else if notice.may_pass() {
                tracing::warn!(target: "redbolt", node, cause, "node refused for now");
            } else {
                tracing::error!(target: "redbolt", node, cause, "node refused until you repair it");
            }
            self.logged.insert(notice.node);
        }
    }
}
