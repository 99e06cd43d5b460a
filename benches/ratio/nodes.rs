//! The nodes of the measurements: named ones, or nodes in this process.

use std::time::Duration;

use redbolt::{Client, Config, IdleStrategy, RestartGuard};
use redbolt_embedded::Nodes;

use crate::Anything;
use redbolt_benches::probe::Probe;

pub(crate) struct Setup {
    /// `host:port`, or `unix://` and a path.
    pub(crate) addresses: Vec<String>,
    /// Lives as long as the measurement.
    _embedded: Option<Nodes>,
}

impl Setup {
    /// The first `count` nodes; `None` if fewer are named.
    pub(crate) fn new(count: usize) -> Anything<Option<Self>> {
        let (list, embedded) = match std::env::var("REDBOLT_NODES") {
            Ok(list) => (list.split(',').map(str::to_owned).collect(), None),
            Err(_) => {
                let nodes = Nodes::start(count)?;
                (nodes.urls(), Some(nodes))
            }
        };
        let list: Vec<String> = list;
        let strip = |url: String| url.trim_start_matches("redis://").to_owned();
        let addresses: Vec<_> = list.into_iter().take(count).map(strip).collect();
        let is_enough = addresses.len() == count;
        Ok(is_enough.then_some(Self { addresses, _embedded: embedded }))
    }

    pub(crate) fn is_tcp(&self) -> bool {
        self.addresses.iter().all(|address| !address.starts_with("unix:"))
    }
}

/// Redbolt's configuration for `addresses`. The guard is off, because the measured clients have no
/// lock to lose.
pub(crate) fn config(addresses: &[String], wait: IdleStrategy) -> Anything<Config> {
    let config = Config::new(addresses)?.restart_guard(RestartGuard::Off).idle_strategy(wait);
    // Where servers and clients share processors, a server may wait some time for its turn.
    Ok(config.node_timeout(Duration::from_millis(500)))
}

/// A client and a probe of the same nodes.
pub(crate) fn both(addresses: &[String], wait: IdleStrategy) -> Anything<(Client, Probe)> {
    let client = Client::connect(config(addresses, wait)?.in_flight_max(1 << 14))?;
    Ok((client, probe(addresses, wait)?))
}

pub(crate) fn probe(addresses: &[String], wait: IdleStrategy) -> Anything<Probe> {
    let strip = |address: &String| address.trim_start_matches("unix://").to_owned();
    let addresses: Vec<_> = addresses.iter().map(strip).collect();
    Ok(Probe::connect(&addresses, wait)?)
}

/// The ways to wait for which the bench measures latency.
pub(crate) const ALL_WAITS: [(&str, IdleStrategy); 3] = [
    ("park", IdleStrategy::Park),
    ("spin", IdleStrategy::Spin),
    ("spin 50 us, then park", IdleStrategy::SpinThenPark(Duration::from_micros(50))),
];

pub(crate) const WAITS: [(&str, IdleStrategy); 2] =
    [("park", IdleStrategy::Park), ("spin", IdleStrategy::Spin)];

/// Fresh keys of 22 bytes.
pub(crate) struct Keys(u64);

impl Keys {
    pub(crate) fn new() -> Self {
        // The last keys of another run may still be there.
        Self(redbolt::now().as_nanos() / 1_000_000)
    }

    pub(crate) fn next(&mut self) -> [u8; 22] {
        self.0 += 1;
        let mut key = *b"bench:0000000000000000";
        let mut rest = self.0;
        for digit in key.iter_mut().rev().take(16) {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        key
    }
}
