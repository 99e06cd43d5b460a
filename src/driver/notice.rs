//! Notices of nodes: to the caller, and, with the feature `tracing`, to the log.

use super::Driver;
use crate::engine::Notice;

impl Driver {
    /// The next thing that people should hear of a node: why it does not vote, where somebody must
    /// mend it, and that it votes again. Each is told once, however many locks it fails; what
    /// nobody takes is kept, the last of each node.
    ///
    /// With the feature `tracing` the same goes to the log by itself, at the end of the pass it
    /// came in: one `error` event a cause (`warn` where it may pass by itself), one `info` once the
    /// node votes again, under the target `redbolt`.
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
