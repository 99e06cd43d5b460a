//! The parts of a driver.

use std::fmt;
use std::ops::Range;

use mio::{Events, Poll, Registry};

#[cfg(feature = "metrics")]
use super::export::Exporter;
use super::lease::LeasePool;
use super::link::Link;
use super::resolve::Resolver;
use crate::engine::Engine;
use crate::quorum::NodeMask;

/// Locks inside your own event loop.
///
/// Dropping it gives up the operations under way, and sends the releases of all locks without a
/// holder, without waiting. [`shutdown`](Self::shutdown) waits for the answers, and returns how
/// many releases the driver still owes. With feature `tracing` or `metrics`, a drop reports each
/// node to which the driver still owes a release. A lease that is held when its driver is dropped
/// stays valid until its deadline; no release follows, and the TTL ends the key.
///
/// Use a driver in one process. In the child of a fork, dropping it and its leases sends nothing.
///
/// ```no_run
/// use redbolt::Config;
/// use redbolt::driver::mio::{Events, Poll};
/// use redbolt::driver::{Driver, Outcome};
/// use std::io::ErrorKind;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::new(["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"])?;
/// let mut poll = Poll::new()?;
/// let mut events = Events::with_capacity(64);
/// let mut driver = Driver::new(config, poll.registry(), 100..132)?;
/// driver.try_lock(b"sku:42", Duration::from_secs(10))?;
/// loop {
///     driver.drive();
///     while let Some(done) = driver.completion() {
///         if let Outcome::Lock(result) = done.result {
///             let lease = result?;
///             println!("held for {:?}", lease.remaining());
/// #           return Ok(());
///         }
///     }
///     match poll.poll(&mut events, driver.timeout()) {
///         Err(error) if error.kind() == ErrorKind::Interrupted => {} // a signal: no events
///         result => result?,
///     }
///     for event in &events {
///         if !driver.ready(event) {
///             // one of your own sockets
///         }
///     }
/// }
/// # }
/// ```
pub struct Driver {
    pub(super) engine: Engine,
    pub(super) links: Vec<Link>,
    pub(super) tokens: Range<usize>,
    pub(super) registry: Registry,
    /// Present if the driver has a poll of its own.
    pub(super) own_poll: Option<(Poll, Events)>,
    pub(super) resolver: Option<Resolver>,
    pub(super) pool: LeasePool,
    /// Nodes whose sockets may hold bytes to read.
    pub(super) readable: NodeMask,
    /// Nodes whose connection is under way and had an event.
    pub(super) connecting: NodeMask,
    /// Nodes whose socket takes no more bytes for now.
    pub(super) blocked: NodeMask,
    /// Nodes with a notice that the driver has logged and the caller has not taken.
    #[cfg(feature = "tracing")]
    pub(super) logged: NodeMask,
    #[cfg(feature = "metrics")]
    pub(super) exporter: Exporter,
    /// The child of a fork has the same sockets, and may write nothing of its own to them.
    pub(super) fork: forkguard::Guard,
    pub(super) buffer: Box<[u8]>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("engine", &self.engine).finish_non_exhaustive()
    }
}
