//! Subscribers of one thread, in a process whose other threads have none.

use std::sync::OnceLock;

use tracing::subscriber::{NoSubscriber, with_default};
use tracing::{Dispatch, Subscriber};

/// Runs `work` with a subscriber of this thread's. The function adds a second one: with only one, a
/// thread without any that reaches an event first switches the event off for all.
pub(crate) fn log_to<T>(
    subscriber: impl Subscriber + Send + Sync + 'static,
    work: impl FnOnce() -> T,
) -> T {
    static OTHER: OnceLock<Dispatch> = OnceLock::new();
    OTHER.get_or_init(|| Dispatch::new(NoSubscriber::new()));
    with_default(subscriber, work)
}
