//! The configuration, checked and in the units of the engine.

use std::time::Duration;

use crate::agreement::Agreement;
use crate::checked::Checked;
use crate::client_name::{ClientId, ClientName};
use crate::config::Config;
use crate::guards::RestartGuard;
use crate::node::{AdmissionRules, ChannelName, Login, Node, Timeouts};
use crate::quorum::{Drift, Electorate};
use crate::retry::Retry;
use crate::time::{Instant, nanos};

/// How many transfers there may be in a row, if the configuration sets no number.
const TRANSFERS_IN_ROW: u8 = 16;

/// A node counts as stalled when it has owed an answer for this many `node_timeout`.
const STALLED_TIMEOUTS: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Settings {
    pub(in crate::engine) electorate: Electorate,
    /// The number of the vote that makes a quorum; of two lists, the larger of their quorums.
    pub(in crate::engine) quorum: u32,
    pub(in crate::engine) drift: Drift,
    pub(in crate::engine) node_timeout: Duration,
    pub(in crate::engine) node_timeout_nanos: u64,
    /// The longer of `node_timeout` and `connect_timeout`.
    pub(in crate::engine) longest_wait_nanos: u64,
    pub(in crate::engine) connect_timeout: Duration,
    pub(in crate::engine) max_ttl_ms: u32,
    pub(in crate::engine) least_ttl_ms: u32,
    pub(in crate::engine) max_extensions: u32,
    pub(in crate::engine) max_hold: Duration,
    pub(in crate::engine) admission: AdmissionRules,
    pub(in crate::engine) direct_wake: bool,
    /// How many transfers there may be in a row; none once the client is about to end.
    pub(in crate::engine) transfers_in_row: u8,
    /// In microseconds.
    pub(in crate::engine) max_clock_skew_us: u64,
    pub(in crate::engine) fence_ttl_ms: u64,
    /// Why no lock can be fenced.
    pub(in crate::engine) no_fences: Option<&'static str>,
    pub(in crate::engine) retry: Retry,
}

impl Settings {
    pub(in crate::engine) fn of(config: &Config, checked: &Checked) -> Self {
        let max_ttl_ms = u32::try_from(config.max_ttl.as_millis()).unwrap_or(u32::MAX);
        let guard_ms = u64::from(max_ttl_ms) + checked.drift.of_ms(max_ttl_ms.into());
        let electorate = checked.electorate();
        let least_ttl_ms = (1..=max_ttl_ms)
            .find(|&ttl| u64::from(ttl) > checked.drift.of_ms(ttl.into()))
            .unwrap_or(max_ttl_ms);
        Self {
            electorate,
            quorum: electorate.least(),
            drift: checked.drift,
            node_timeout: config.node_timeout,
            node_timeout_nanos: nanos(config.node_timeout),
            longest_wait_nanos: nanos(config.node_timeout.max(config.connect_timeout)),
            connect_timeout: config.connect_timeout,
            max_ttl_ms,
            least_ttl_ms,
            max_extensions: config.max_extensions.unwrap_or(u32::MAX),
            max_hold: config.max_hold.unwrap_or(Duration::MAX),
            direct_wake: config.direct_wake,
            // A client of one list alone could not tell whether a quorum of both holds the lock.
            transfers_in_row: match config.next_list {
                Some(_) => 0,
                None => config.transfers_in_row.unwrap_or(TRANSFERS_IN_ROW),
            },
            max_clock_skew_us: nanos(config.max_clock_skew) / 1_000,
            fence_ttl_ms: u64::try_from(config.fence_ttl_or_default().as_millis())
                .unwrap_or(u64::MAX),
            no_fences: config.why_no_fences(guard_ms),
            retry: config.retry,
            admission: AdmissionRules {
                guard: config.restart_guard,
                guard_time: Duration::from_millis(guard_ms),
                failover_guard: config.failover_guard,
                admission: config.admission,
            },
        }
    }

    /// The settings that all clients of the same locks must share.
    pub(in crate::engine) fn agreement(&self, prefix: &[u8]) -> Agreement {
        let guard = self.admission.guard == RestartGuard::On;
        Agreement::new(
            self.electorate.node_count(),
            self.electorate.announced(),
            self.max_ttl_ms,
            guard,
            prefix,
        )
    }
}

/// The client's name at the nodes.
pub(in crate::engine) fn name_of(config: &Config, client: ClientId) -> ClientName {
    ClientName::of(client, &config.process, config.client_name.as_deref())
}

/// The nodes of a configuration, none of them connected.
pub(in crate::engine) fn nodes_of(
    config: &Config,
    (client, name): (ClientId, &str),
    now: Instant,
) -> Vec<Node> {
    let timeouts = Timeouts {
        connect_timeout: config.connect_timeout,
        stalled_after: config.node_timeout * STALLED_TIMEOUTS,
    };
    let channel = config.direct_wake.then(|| ChannelName::of(client));
    config
        .nodes
        .iter()
        .map(|address| {
            let login = Login {
                username: address.username.clone().or_else(|| config.username.clone()),
                password: address.password.clone().or_else(|| config.password.clone()),
                client_name: Some(name.to_owned()),
                database: address.database(),
                channel,
            };
            Node::new(login, timeouts, now)
        })
        .collect()
}
