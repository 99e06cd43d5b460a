//! How an engine begins: the configuration, checked and in the units that it is used in.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Engine;
use super::cohort::Cohort;
use super::counts::Counts;
use super::keep::Keeps;
use super::op::Ops;
use super::prefix::Prefix;
use super::slot::Slots;
use super::timers::Timers;
#[cfg(feature = "tracing")]
use super::trace::Traces;
use super::wait::{Queues, Waits, Wakes};
use crate::command::SetOptions;
use crate::config::{Checked, Config, Retry};
use crate::error::ConfigError;
use crate::node::{AdmissionRules, ChannelName, Login, Node, Patience, Shown};
use crate::quorum::{Drift, NodeMask};
use crate::time::{Instant, nanos};

/// A node counts as stalled when it has owed an answer for this many `node_timeout`.
const STALLED_TIMEOUTS: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) node_count: u32,
    pub(super) quorum: u32,
    pub(super) drift: Drift,
    pub(super) node_timeout: Duration,
    pub(super) node_timeout_nanos: u64,
    /// The longer of `node_timeout` and `connect_timeout`.
    pub(super) longest_wait_nanos: u64,
    pub(super) connect_timeout: Duration,
    pub(super) max_ttl_ms: u32,
    pub(super) least_ttl_ms: u32,
    pub(super) max_extensions: u32,
    pub(super) max_hold: Duration,
    pub(super) admission: AdmissionRules,
    pub(super) direct_wake: bool,
    pub(super) retry: Retry,
}

impl Settings {
    fn of(config: &Config, checked: &Checked) -> Self {
        let max_ttl_ms = u32::try_from(config.max_ttl.as_millis()).unwrap_or(u32::MAX);
        let guard_ms = u64::from(max_ttl_ms) + checked.drift.of_ms(max_ttl_ms.into());
        let least_ttl_ms = (1..=max_ttl_ms)
            .find(|&ttl| u64::from(ttl) > checked.drift.of_ms(ttl.into()))
            .unwrap_or(max_ttl_ms);
        Self {
            node_count: u32::try_from(config.nodes.len()).unwrap_or(0),
            quorum: checked.quorum,
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
            retry: config.retry,
            admission: AdmissionRules {
                guard: config.restart_guard,
                guard_time: Duration::from_millis(guard_ms),
                admission: config.admission,
            },
        }
    }
}

/// The nodes of a configuration, none of them connected.
fn nodes_of(config: &Config, channel: Option<ChannelName>, now: Instant) -> Vec<Node> {
    let patience = Patience {
        connect_timeout: config.connect_timeout,
        stalled_after: config.node_timeout * STALLED_TIMEOUTS,
    };
    config
        .nodes
        .iter()
        .map(|address| {
            let login = Login {
                username: address.username.clone().or_else(|| config.username.clone()),
                password: address.password.clone().or_else(|| config.password.clone()),
                client_name: config.client_name.clone(),
                database: address.database(),
                channel,
            };
            Node::new(login, patience, now)
        })
        .collect()
}

impl Engine {
    /// An engine over the nodes of `config`. `seed` must come from the operating system's generator
    /// (a fixed one is for tests): tokens are drawn from it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a setting is out of its range.
    pub fn new(config: &Config, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        let checked = config.check()?;
        let mut rng = StdRng::from_seed(seed);
        let mut client_id = [0; 8];
        rng.fill_bytes(&mut client_id);
        let channel = config.direct_wake.then(|| ChannelName::of(client_id));
        let nodes = nodes_of(config, channel, now);
        Ok(Self {
            settings: Settings::of(config, &checked),
            names: config.nodes.iter().map(|address| address.name().into()).collect(),
            nodes,
            shown: vec![(Shown::Disconnected, now); config.nodes.len()],
            voters: NodeMask::EMPTY,
            cohort: Cohort::EMPTY,
            with_output: NodeMask::EMPTY,
            waking: NodeMask::EMPTY,
            with_wish: NodeMask::EMPTY,
            restless: NodeMask::first(config.nodes.len()),
            stalls_at: now,
            with_news: NodeMask::EMPTY,
            slots: Slots::default(),
            ops: Ops::new(config.in_flight_max),
            done: VecDeque::new(),
            timers: Timers::default(),
            keeps: Keeps::default(),
            awaiting: Vec::new(),
            late_votes: VecDeque::new(),
            waits: Waits::default(),
            queues: Queues::default(),
            wakes: Wakes::default(),
            absent: 0,
            last_pass: now,
            last_call: now,
            client_id,
            slot_mask: rng.next_u32(),
            rng,
            is_closing: false,
            scratch: Vec::new(),
            frame: Vec::new(),
            text: Vec::new(),
            set_options: SetOptions::new(),
            prefix: Prefix::new(&config.key_prefix),
            counts: Counts::default(),
            #[cfg(feature = "tracing")]
            traces: Traces::default(),
        })
    }

    /// Lets so much wait for each node, before it is used.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn limit(&mut self, room: super::Room) {
        for node in &mut self.nodes {
            node.limit(room);
        }
    }
}
