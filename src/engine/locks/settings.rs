//! The configuration, checked and in the units of the engine.

use std::time::Duration;

use super::slot::{Mark, Slot};
use crate::agreement::{Agreement, NodeList};
use crate::checked::Checked;
use crate::client_name::{ClientId, ClientName};
use crate::config::Config;
use crate::guards::{FailoverGuard, RestartGuard};
use crate::node::{AdmissionRules, ChannelName, Login, Node, OLD_MASTER_GRANTS_MS, Timeouts};
use crate::quorum::{Drift, Electorate, NodeMask};
use crate::retry::Retry;
use crate::rules;
use crate::time::{Instant, nanos};

/// A node counts as stalled when it has owed an answer for this many `node_timeout`.
const STALLED_TIMEOUTS: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Settings {
    pub(in crate::engine) electorate: Electorate,
    /// The electorate before the last change of the lists. It decides on the attempts and leases that
    /// began under it, until an extension carries them on.
    pub(in crate::engine) former: Electorate,
    /// How many votes make a quorum; of two lists, the larger number.
    pub(in crate::engine) quorum: u32,
    pub(in crate::engine) drift: Drift,
    pub(in crate::engine) node_timeout: Duration,
    pub(in crate::engine) node_timeout_nanos: u64,
    /// The longer of `node_timeout` and `connect_timeout`.
    pub(in crate::engine) longest_wait_nanos: u64,
    pub(in crate::engine) connect_timeout: Duration,
    pub(in crate::engine) max_ttl_ms: u32,
    /// The least time between two changes of the lists: `max_ttl`, drift, twice the clock skew.
    pub(in crate::engine) exchange_pause: Duration,
    pub(in crate::engine) least_ttl_ms: u32,
    pub(in crate::engine) max_extensions: u32,
    pub(in crate::engine) max_hold: Duration,
    pub(in crate::engine) admission: AdmissionRules,
    pub(in crate::engine) direct_wake: bool,
    /// How many transfers there may be in a row; none once the client is about to end.
    pub(in crate::engine) transfers_in_row: u8,
    pub(in crate::engine) is_closing: bool,
    /// In microseconds.
    pub(in crate::engine) max_clock_skew_us: u64,
    pub(in crate::engine) fence_ttl_ms: u64,
    /// Why no lock can be fenced.
    pub(in crate::engine) no_fences: Option<&'static str>,
    pub(in crate::engine) retry: Retry,
}

impl Settings {
    pub(in crate::engine) fn of(config: &Config, checked: &Checked) -> Self {
        let electorate = checked.electorate();
        let guard_time = Duration::from_millis(checked.guard_ms);
        let old_master_ms = OLD_MASTER_GRANTS_MS + checked.drift.of_ms(OLD_MASTER_GRANTS_MS);
        Self {
            electorate,
            former: electorate,
            quorum: electorate.least(),
            drift: checked.drift,
            node_timeout: config.node_timeout,
            node_timeout_nanos: nanos(config.node_timeout),
            longest_wait_nanos: nanos(config.node_timeout.max(config.connect_timeout)),
            connect_timeout: config.connect_timeout,
            max_ttl_ms: checked.most_ttl_ms,
            exchange_pause: guard_time + 2 * config.max_clock_skew,
            least_ttl_ms: checked.least_ttl_ms,
            max_extensions: config.max_extensions.unwrap_or(u32::MAX),
            max_hold: config.max_hold.unwrap_or(Duration::MAX),
            direct_wake: config.direct_wake,
            transfers_in_row: transfers_in_row(config),
            is_closing: false,
            max_clock_skew_us: nanos(config.max_clock_skew) / 1_000,
            fence_ttl_ms: u64::try_from(config.fence_ttl_or_default().as_millis())
                .unwrap_or(u64::MAX),
            no_fences: checked.no_fences,
            retry: config.retry,
            admission: AdmissionRules {
                guard: config.restart_guard,
                guard_time,
                old_master_grants: Duration::from_millis(old_master_ms),
                failover_guard: config.failover_guard,
                admission: config.admission,
            },
        }
    }

    /// The lists that decide on an attempt or a lease.
    #[inline]
    pub(in crate::engine) fn electorate_of(&self, slot: &Slot) -> &Electorate {
        if slot.has(Mark::FORMER) { &self.former } else { &self.electorate }
    }

    /// The settings that all clients of the same locks must share.
    pub(in crate::engine) fn agreement(&self, names: &[Box<str>], prefix: &[u8]) -> Agreement {
        let list = |(nodes, quorum): (NodeMask, u32)| {
            let names = nodes.into_iter().filter_map(|id| names.get(id.index()));
            NodeList::new(quorum, names.map(AsRef::as_ref))
        };
        let lists = self.electorate.lists().map(list).collect();
        Agreement {
            restart_guard: self.admission.guard == RestartGuard::On,
            failover_guard: self.admission.failover_guard == FailoverGuard::On,
            ..Agreement::new(lists, self.max_ttl_ms, prefix)
        }
    }
}

/// How many transfers there may be in a row; none with two lists. A client of one list could not
/// tell whether both lists grant the lock.
pub(in crate::engine) fn transfers_in_row(config: &Config) -> u8 {
    let usual = config.transfers_in_row;
    match config.next_list {
        Some(_) => rules::transfers_between_lists(0, usual),
        None => usual,
    }
}

/// The client's name at the nodes.
pub(in crate::engine) fn name_of(config: &Config, client: ClientId) -> ClientName {
    ClientName::of(client, &config.process, config.client_name.as_deref())
}

/// The nodes of a configuration from the place `first` on, none of them connected.
pub(in crate::engine) fn nodes_of(
    config: &Config,
    first: usize,
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
        .skip(first)
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
