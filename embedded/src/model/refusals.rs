//! Error texts of refused commands, for the gate and for scripts.

use super::flavor::Flavor;

pub(crate) fn misconf(flavor: Flavor) -> String {
    let title = flavor.title();
    format!(
        "MISCONF {title} is configured to save RDB snapshots, but it's currently unable to \
         persist to disk. Commands that may modify the data set are disabled, because this \
         instance is configured to report errors during writes if RDB snapshotting fails \
         (stop-writes-on-bgsave-error option). Please check the {title} logs for details \
         about the RDB error."
    )
}

pub(crate) const READONLY: &str = "READONLY You can't write against a read only replica.";
pub(crate) const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
pub(crate) const MASTERDOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
