//! Notices of nodes: to the caller, and, with the feature `tracing`, to the log.

use super::Driver;
use crate::engine::Notice;

impl Driver {
    /// The next thing that people should know of a node: why it does not vote, if a person must
    /// repair it, and that it votes again. Each is reported once, however many locks fail by it; of
    /// those not taken, the last of each node is kept.
    ///
    /// With the feature `tracing` the driver also logs it, at the end of the same pass, under the
    /// target `redbolt`: one `error` event per cause (`warn` if it may pass by itself), one `info`
    /// once the node votes again.
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

    /// Logs what is new.
    #[cfg(feature = "tracing")]
    pub(super) fn log_notices(&mut self) {
        while let Some(notice) = self.engine.poll_notice() {
            let (node, cause) = (notice.name(), notice.cause.text());
            if notice.is_well() {
                tracing::info!(target: "redbolt", node, "node votes again");
            } else if notice.may_pass() {
                tracing::warn!(target: "redbolt", node, cause, "node refused for now");
            } else {
                tracing::error!(target: "redbolt", node, cause, "node refused: it must be mended");
            }
            self.logged.insert(notice.node);
        }
    }
}
