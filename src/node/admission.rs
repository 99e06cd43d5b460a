//! Whether a connected node may vote: what kind of server it is, and whether it may have lost
//! locks.
//!
//! # Invariants
//!
//! - A node that may have lost its memory does not vote until every lock that it may have granted
//!   has expired. That is `G = max_ttl + drift` after the loss. (Test: the guard's table in
//!   `tests.rs`.)
//! - After a failover the old master may go on granting for [`OLD_MASTER_GRANTS_MS`], by its own
//!   clock. The new one waits so much longer. A master that could grant for longer does not vote.
//!   (Test: the failover's tables.)
//! - An answer counts only for the incarnation that gave it: a connection is one process.
//! - The caller reads `now` after the answers: ages and remaining times count from it.

use std::time::Duration;

use crate::error::Cause;
use crate::guards::{Admission, FailoverGuard, RestartGuard};
use crate::node::greeting::{Facts, MASTER};
use crate::rules;
use crate::time::Instant;

/// The settings on which admission depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRules {
    pub(crate) guard: RestartGuard,
    /// `G`: how long a node without memory does not vote.
    pub(crate) guard_time: Duration,
    /// How much longer a node has no vote if an old master may still grant. It is
    /// [`OLD_MASTER_GRANTS_MS`] plus the drift, because the old master counts by its own clock.
    pub(crate) old_master_grants: Duration,
    pub(crate) failover_guard: FailoverGuard,
    pub(crate) admission: Admission,
}

/// For how long after a failover an old master may still grant. At worst the replica acknowledged
/// just before the failover. A master counts the lag in whole seconds, and checks it once a second:
/// each adds a second to [`LAG_MAX_S`]. One second more is for an acknowledgement and a look that
/// come late.
pub(crate) const OLD_MASTER_GRANTS_MS: u64 = (LAG_MAX_S + 3) * 1_000;

/// The longest `min-replicas-max-lag`, in seconds: the servers' default.
const LAG_MAX_S: u64 = 10;

impl AdmissionRules {
    /// Whether the failover guard is on, and another server may become the master in the place of a
    /// node with these facts.
    pub(super) fn minds_failover(&self, facts: &Facts) -> bool {
        self.failover_guard == FailoverGuard::On && facts.fails_over()
    }

    /// How long a node that shows these facts does not vote after it lost its memory. A promoted
    /// node that has restarted does not show that it was promoted.
    fn wait(&self, facts: &Facts) -> Duration {
        if rules::may_old_master_grant(self.minds_failover(facts)) {
            self.guard_time.saturating_add(self.old_master_grants)
        } else {
            self.guard_time
        }
    }

    /// Whether a failover of the node could leave a master that goes on granting.
    fn is_unguarded(&self, facts: &Facts) -> bool {
        if !self.minds_failover(facts) {
            return false;
        }
        let replicas = facts.replicas.unwrap_or(u64::MAX);
        let may_go_on = match facts.floor {
            Some(floor) => floor.replicas < replicas || floor.lag_s > LAG_MAX_S,
            // The user may not read the settings. With one replica any floor is enough.
            None => facts.is_asked_more && replicas > 1,
        };
        self.guard == RestartGuard::Off || !facts.has_floor || may_go_on
    }
}

/// When a node last lost its keys, as far as the client knows: `age` before `seen_at`. That may be
/// before the clock began.
#[derive(Clone, Copy, Debug)]
struct Loss {
    seen_at: Instant,
    age: Duration,
}

impl Loss {
    const fn now(now: Instant) -> Self {
        Self { seen_at: now, age: Duration::ZERO }
    }

    /// The later of the two.
    fn or_later(self, other: Self) -> Self {
        if other.seen_at + self.age > self.seen_at + other.age { other } else { self }
    }

    /// When all locks that the node granted before are over, if they last for `wait`.
    fn over_at(self, wait: Duration) -> Instant {
        wait.checked_sub(self.age).map_or_else(Instant::default, |left| self.seen_at + left)
    }
}

impl Default for Loss {
    fn default() -> Self {
        Self { seen_at: Instant::default(), age: Duration::MAX }
    }
}

/// How many earlier processes of a node the client remembers.
const FORMER_MAX: usize = 16;

/// The client's memory of a node across its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Whether the node has ever completed a greeting.
    known: bool,
    identity: Option<String>,
    /// The processes that the client met here before, the last of them last.
    former: Vec<String>,
    replid: Option<String>,
    /// The node's current incarnation does not vote before this.
    until: Instant,
    lost: Loss,
    /// When the node last answered anything.
    pub(crate) last_answer: Instant,
}

/// The decision of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Admitted,
    Quarantined { until: Instant },
    Refused(Cause),
}

impl History {
    /// The identity that the node last showed.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Whether the client met the present process earlier, and another process in between.
    pub(crate) fn is_back(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| self.former.contains(identity))
    }

    /// Whether the client has met this process here.
    pub(crate) fn has_met(&self, identity: &str) -> bool {
        self.identity() == Some(identity) || self.former.iter().any(|former| former == identity)
    }

    /// Notes which process is there now.
    fn meet(&mut self, identity: Option<String>) {
        if identity != self.identity
            && let Some(before) = std::mem::replace(&mut self.identity, identity)
            && !self.former.contains(&before)
        {
            if self.former.len() >= FORMER_MAX {
                self.former.remove(0);
            }
            self.former.push(before);
        }
    }

    /// Judges a greeting that ended at `now`. `is_duplicate` says whether another configured node
    /// has this identity.
    pub(crate) fn admit(
        &mut self,
        facts: &Facts,
        rules: &AdmissionRules,
        is_duplicate: impl FnOnce(&str) -> bool,
        now: Instant,
    ) -> Standing {
        if let Some(cause) = refusal(facts, rules) {
            if matches!(cause, Cause::Replica | Cause::MasterDown) {
                self.remember_replica(facts, rules, now);
            }
            return Standing::Refused(cause);
        }
        let identity = facts.identity();
        // Votes would be safe without this rule, because a server denies the SET of its second
        // address. The rule is for extensions, and for users who count their nodes.
        if identity.as_deref().is_some_and(is_duplicate) {
            return Standing::Refused(Cause::Duplicate);
        }
        self.remember(facts, identity, rules, now);
        self.standing(rules.guard, now)
    }

    /// Notes the incarnation and computes from when on it may vote.
    fn remember(
        &mut self,
        facts: &Facts,
        identity: Option<String>,
        rules: &AdmissionRules,
        now: Instant,
    ) {
        // A node that does not show its identity is the same while its connection lasts.
        let is_same = identity == self.identity && (identity.is_some() || facts.is_again);
        let same_process = self.known && is_same;
        let same_role = rules::was_always_master(self.replid == facts.replid);
        let age = match facts.uptime_s {
            // A changed replication id in one process: the node was a replica in between, and lost
            // its keys at an unknown time.
            _ if same_process => Duration::ZERO,
            Some(uptime) => {
                let age = Duration::from_secs(rules::surely_lived_s(uptime));
                if rules::may_have_been_replica(facts.was_replica) {
                    age.min(met_for(facts))
                } else {
                    age
                }
            }
            // The node does not tell its age, and may just have restarted. Lenient admission
            // promises to trust a node that it meets for the first time.
            None if rules.admission == Admission::Lenient && !self.known => Duration::MAX,
            None => Duration::ZERO,
        };
        let is_met_again = same_process && same_role;
        if !is_met_again {
            self.lost = self.lost.or_later(Loss { seen_at: now, age });
            if self.known {
                // The age that a node reports depends on its wall clock; the last answer of the
                // older incarnation does not.
                self.lost = self.lost.or_later(Loss::now(self.last_answer));
            }
        }
        // The node may have got a replica since, so the wait may be longer now. A quarantine
        // outlasts the process that began it: an old master may still grant.
        self.until = self.until.max(self.lost.over_at(rules.wait(facts)));
        if is_met_again {
            self.until = rules::quarantine_after_reconnect(self.until, now);
        }
        self.known = true;
        self.meet(identity);
        self.replid.clone_from(&facts.replid);
    }

    /// A node that is a replica now may have held locks before, and has lost them.
    fn remember_replica(&mut self, facts: &Facts, rules: &AdmissionRules, now: Instant) {
        self.known = true;
        self.meet(facts.identity());
        self.replid.clone_from(&facts.replid);
        self.distrust(rules, now);
    }

    /// The node answered that it is no master, or that it is loading: the keys that it granted may
    /// be gone.
    pub(crate) fn distrust(&mut self, rules: &AdmissionRules, now: Instant) {
        self.lost = self.lost.or_later(Loss::now(now));
        self.until = self.until.max(now + rules.guard_time);
    }

    fn standing(&self, guard: RestartGuard, now: Instant) -> Standing {
        match guard {
            RestartGuard::On if rules::is_quarantined(self.until, now) => {
                Standing::Quarantined { until: self.until }
            }
            RestartGuard::On | RestartGuard::Off => Standing::Admitted,
        }
    }
}

/// For how long the marker proves that the node has been a master, on the node's clock.
fn met_for(facts: &Facts) -> Duration {
    facts.met_for.unwrap_or_default().saturating_sub(Duration::from_millis(2))
}

/// Why the node may not vote, whatever its age.
pub(super) fn refusal(facts: &Facts, rules: &AdmissionRules) -> Option<Cause> {
    if let Some(cause) = facts.fault {
        return Some(cause);
    }
    match facts.mode.as_deref() {
        Some("cluster") => return Some(Cause::Cluster),
        Some("sentinel") => return Some(Cause::Sentinel),
        _ => {}
    }
    // "replica", "slave", "active-replica": a master can overwrite each of them.
    if facts.role.as_deref().is_some_and(|role| role != MASTER) {
        return Some(Cause::Replica);
    }
    if facts.loading {
        return Some(Cause::Loading);
    }
    if facts.maxmemory_policy.as_deref().is_some_and(|policy| policy != "noeviction") {
        return Some(Cause::Eviction);
    }
    if rules::is_unguarded_refused(rules.is_unguarded(facts)) {
        return Some(Cause::Unguarded);
    }
    // A server that does not say how many replicas it has may have some.
    let is_hidden = facts.info_denied || facts.replicas.is_none();
    if is_hidden && rules.admission == Admission::Strict {
        return Some(Cause::InfoDenied);
    }
    None
}
