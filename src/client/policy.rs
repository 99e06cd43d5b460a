//! [`Policy`]: checks and times that follow from the settings, for calls that have not asked a node
//! yet.

use std::sync::Arc;
use std::time::Duration;

use super::queues::Holder;
use crate::config::Config;
use crate::engine::{Engine, Prefix};
use crate::error::{
    Ballot, Cause, ConfigError, ConnectError, LockError, ONLY_ONE_HAS_SLOTS, SEVERAL_KEYS,
};
use crate::key;
use crate::options::{LockOptions, Share};
use crate::quorum::{Drift, Electorate, NODES_MAX, NodeMask};
use crate::retry::Retry;
use crate::rules;
use crate::time::Instant;

/// How often in a row, at most, the client hands a lease on while another client waits for it.
const TURNS_WANTED_ELSEWHERE: u32 = 8;

#[derive(Debug)]
pub(super) struct Policy {
    /// The lists of the configuration. The table has the present ones.
    pub(super) lists: Lists,
    pub(super) retry: Retry,
    turns_max: u32,
    /// The configuration limits how often a caller extends a lease, or how long it holds one.
    has_limits: bool,
    drift: Drift,
    least_ttl: Duration,
    most_ttl: Duration,
    pub(super) no_fences: Option<&'static str>,
    prefix: Prefix,
    /// Other clients can tell this client that they wait.
    is_woken: bool,
}

/// The nodes, as the configuration or the driving thread last gave them.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    pub(super) names: Arc<[Box<str>]>,
    pub(super) electorate: Electorate,
    /// Lists are to come that do not decide yet.
    pub(super) are_to_change: bool,
}

impl Policy {
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let checked = config.check()?;
        let has_limits = config.max_extensions.is_some() || config.max_hold.is_some();
        Ok(Self {
            lists: Lists {
                names: config.nodes.iter().map(|address| address.name().into()).collect(),
                electorate: checked.electorate(),
                are_to_change: false,
            },
            retry: config.retry,
            // The next holder of a lease with limits would get only the rest of them.
            turns_max: if has_limits { 0 } else { config.local_turns },
            has_limits,
            drift: checked.drift,
            least_ttl: Duration::from_millis(checked.least_ttl_ms.into()),
            most_ttl: Duration::from_millis(checked.most_ttl_ms.into()),
            no_fences: checked.no_fences,
            prefix: Prefix::new(&config.key_prefix),
            is_woken: config.direct_wake,
        })
    }

    /// A key as the nodes know it.
    pub(super) fn wire_key(&self, key: &[u8]) -> Result<Vec<u8>, LockError> {
        self.prefix.wire_key(key).map(Into::into)
    }

    /// Refuses at once a call that the engine would refuse. Otherwise a queued call would learn of
    /// it only at its turn.
    pub(super) fn check(&self, key: &[u8], options: &LockOptions) -> Result<(), LockError> {
        self.check_options(options)?;
        self.check_key(key)?;
        options.share.check(key)
    }

    /// As [`check`](Self::check), for several keys.
    pub(super) fn check_all(&self, name: &[u8], options: &LockOptions) -> Result<(), LockError> {
        self.check_options(options)?;
        if options.share != Share::Whole {
            return Err(LockError::InvalidKeys { why: ONLY_ONE_HAS_SLOTS });
        }
        if options.linger_ms > 0 {
            return Err(LockError::NoLinger { why: SEVERAL_KEYS });
        }
        key::split(name).unwrap_or_default().into_iter().try_for_each(|key| self.check_key(key))
    }

    fn check_key(&self, key: &[u8]) -> Result<(), LockError> {
        if self.prefix.is_plain(key) { Ok(()) } else { self.prefix.check_taken(key) }
    }

    fn check_options(&self, options: &LockOptions) -> Result<(), LockError> {
        let ttl_ms = u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX);
        let (least, most) = (self.least_ttl, self.most_ttl);
        if !(least..=most).contains(&Duration::from_millis(ttl_ms)) {
            return Err(LockError::InvalidTtl { ttl: options.ttl, least, most });
        }
        match self.no_fences {
            Some(why) if options.is_fenced => Err(LockError::NoFences { why }),
            _ => options.check_linger(self.is_woken, self.has_limits),
        }
    }

    /// How often callers may hand a lease on before the client releases it.
    pub(super) const fn turns_max(&self, is_wanted_elsewhere: bool) -> u32 {
        if is_wanted_elsewhere && self.turns_max > TURNS_WANTED_ELSEWHERE {
            TURNS_WANTED_ELSEWHERE
        } else {
            self.turns_max
        }
    }

    /// When a lease with the deadline `ends` stops lingering. The time counts from the SET or
    /// extension that gave this deadline. It is at most the holder's limit. It is also at most half
    /// of the validity (TTL less drift), or a third for a lease that is kept alive.
    pub(super) fn lingers_until(&self, holder: &Holder, ends: Instant) -> Instant {
        let ttl_ms = u64::try_from(holder.ttl.as_millis()).unwrap_or(u64::MAX);
        let validity = Duration::from_millis(ttl_ms.saturating_sub(self.drift.of_ms(ttl_ms)));
        let parts = if holder.keep_alive { 3 } else { 2 };
        let left = validity.saturating_sub(holder.linger.min(validity / parts));
        ends.minus_nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The validity that a lease needs for a call with these options: at least its `min_validity`,
    /// and half of a new lease's validity.
    pub(super) fn validity_wanted(&self, options: &LockOptions) -> Duration {
        let ttl_ms = u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX);
        let validity_ms = ttl_ms.saturating_sub(self.drift.of_ms(ttl_ms));
        options.min_validity.max(Duration::from_millis(validity_ms.div_ceil(2)))
    }

    /// Whether a lease suits a call with these options: it is kept alive as wanted, and neither
    /// side has a fence or is announced. Each holder has its own fence, which only nodes give, and
    /// each leader its own term.
    pub(super) fn suits(holder: &Holder, wanted: &LockOptions) -> bool {
        holder.keep_alive == wanted.keep_alive
            && !rules::needs_own_fence(holder.is_fenced || wanted.is_fenced)
            && !rules::needs_own_term(holder.is_announced || wanted.is_announced)
    }
}

impl Lists {
    /// The ballot of an attempt that never went to the nodes. The nodes of `holds` hold the key for
    /// another caller of this client.
    pub(super) fn queued_ballot(&self, holds: NodeMask) -> Ballot {
        self.ballot(NodeMask::EMPTY, holds, Cause::Queued)
    }

    /// The error of a call that waited in the queue in vain, behind this holder.
    pub(super) fn queued_in_vain(
        &self,
        holder: Option<Holder>,
        engine: &Engine,
        now: Instant,
    ) -> LockError {
        if holder.is_none()
            && let Some(ConnectError::NoQuorum(ballot)) = engine.connect_error(now)
        {
            return LockError::NoQuorum(ballot);
        }
        let votes = holder.map_or(NodeMask::EMPTY, |holder| holder.votes);
        LockError::Taken(self.queued_ballot(votes))
    }

    /// Checks a lease again just before its caller gets it.
    pub(super) fn check_lease(
        remaining: Duration,
        min_validity: Duration,
        votes: NodeMask,
        lists: impl FnOnce() -> Self,
    ) -> Result<(), LockError> {
        if remaining.is_zero() || remaining < min_validity {
            return Err(LockError::Expired(lists().ballot(votes, NodeMask::EMPTY, Cause::None)));
        }
        Ok(())
    }

    fn ballot(&self, granted: NodeMask, denied: NodeMask, cause: Cause) -> Ballot {
        let Self { names, electorate, .. } = self;
        Ballot {
            granted,
            denied,
            unknown: NodeMask::EMPTY,
            causes: [cause; NODES_MAX],
            names: Arc::clone(names),
            listed: electorate.nodes(),
            quorum: electorate.least(),
            is_joint: electorate.is_joint(),
            quarantine_ms: 0,
            key: None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::engine::LeaseId;
    use crate::quorum::NodeMask;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_lease_with_less_than_half_of_what_a_new_one_would_have_is_not_handed_on() {
        let policy = Policy::new(&Config::new(["h:1"]).unwrap()).unwrap();
        assert_eq!(policy.validity_wanted(&LockOptions::new(ms(10_000))), ms(4_949));
        assert_eq!(policy.validity_wanted(&LockOptions::new(ms(4))), ms(1));
        let choosy = LockOptions::new(ms(10_000)).min_validity(ms(9_000));
        assert_eq!(policy.validity_wanted(&choosy), ms(9_000));
    }

    #[test]
    fn a_lease_that_has_limits_is_not_handed_on() {
        let policy = |change: fn(Config) -> Config| {
            Policy::new(&change(Config::new(["h:1"]).unwrap())).unwrap().turns_max(false)
        };
        assert_eq!(policy(|config| config), 64);
        assert_eq!(policy(|config| config.max_extensions(9)), 0);
        assert_eq!(policy(|config| config.max_hold(ms(9_000))), 0);
    }

    /// Behind another caller of the client it would be told that the lock is taken.
    #[test]
    fn a_call_for_a_fence_that_the_settings_forbid_is_refused_before_it_queues() {
        let config = Config::new(["h:1"]).unwrap().restart_guard(crate::guards::RestartGuard::Off);
        let policy = Policy::new(&config).unwrap();
        let result = policy.check(b"k", &LockOptions::new(ms(10)).fenced());
        assert!(matches!(result, Err(LockError::NoFences { .. })), "{result:?}");
        assert!(policy.check(b"k", &LockOptions::new(ms(10))).is_ok());
    }

    /// The call's turn in the queue and the end of its time come together.
    #[test]
    fn a_call_whose_time_ends_at_its_turn_hears_that_no_quorum_answers() {
        let config = Config::new(["h:1"]).unwrap();
        let now = Instant::from_nanos(1);
        let engine = Engine::new(&config, [0; 32], now).unwrap();
        let policy = Policy::new(&config).unwrap();
        let error = policy.lists.queued_in_vain(None, &engine, now);
        assert!(matches!(error, LockError::NoQuorum(_)), "{error:?}");
    }

    fn holder(is_fenced: bool, is_announced: bool) -> Holder {
        Holder {
            id: LeaseId::nth(0),
            valid_until: Instant::MAX,
            votes: NodeMask::first(1),
            held_since: super::super::counting::Moment::default(),
            turns: 0,
            is_wanted_elsewhere: false,
            keep_alive: false,
            is_fenced,
            is_announced,
            ttl: ms(10),
            linger: Duration::ZERO,
            is_extended: false,
            lingers_until: Instant::default(),
        }
    }

    #[test]
    pub(in crate::client) fn a_lease_with_a_fence_is_not_handed_on() {
        let (plain, fenced) = (LockOptions::new(ms(10)), LockOptions::new(ms(10)).fenced());
        assert!(Policy::suits(&holder(false, false), &plain));
        assert!(!Policy::suits(&holder(true, false), &fenced));
        assert!(!Policy::suits(&holder(true, false), &plain));
        assert!(!Policy::suits(&holder(false, false), &fenced));
    }

    #[test]
    pub(in crate::client) fn a_lease_of_a_leader_is_not_handed_on() {
        let (plain, announced) = (LockOptions::new(ms(10)), LockOptions::new(ms(10)).announced());
        assert!(!Policy::suits(&holder(false, true), &announced));
        assert!(!Policy::suits(&holder(false, true), &plain));
        assert!(!Policy::suits(&holder(false, false), &announced));
    }

    #[test]
    fn what_no_node_would_take_is_refused_at_once() {
        let policy = Policy::new(&Config::new(["h:1"]).unwrap()).unwrap();
        let check = |key: &[u8], options: &LockOptions| policy.check(key, options);
        assert!(check(b"k", &LockOptions::new(ms(4))).is_ok());
        assert!(check(b"k", &LockOptions::new(ms(30_000))).is_ok());
        for ttl in [ms(0), ms(3), ms(30_001), Duration::MAX] {
            let error = check(b"k", &LockOptions::new(ttl)).unwrap_err();
            assert!(matches!(error, LockError::InvalidTtl { .. }), "{ttl:?}: {error}");
        }
        let options = LockOptions::new(ms(10));
        assert!(matches!(check(b"", &options), Err(LockError::InvalidKey { len: 0 })));
        assert!(matches!(check(&[b'k'; 4097], &options), Err(LockError::InvalidKey { len: 4097 })));
    }
}
