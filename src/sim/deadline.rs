//! The time limits of operations and leases. Every operation ends by its own deadline. A lease's
//! deadline counts from the round in which it was won.

use super::clock::{Global, MS};
use super::plan::Plan;
use super::world::World;
use crate::options::LockOptions;
use crate::quorum::Drift;
use crate::rules::Kind;
use crate::time::Instant;

use std::time::Duration;

impl Plan {
    /// Whether the extensions of a lease are limited.
    pub(super) const fn is_bounded(&self) -> bool {
        self.rare.max_extensions.is_some() || self.rare.max_hold.is_some()
    }
}

impl World {
    /// How long a round may take if it waits for nodes on their way.
    pub(super) fn round_time(&self) -> Duration {
        Duration::from_nanos(self.plan.connect_timeout.max(self.plan.node_timeout))
    }

    /// When an acquisition must have ended by itself, on the client's clock.
    pub(super) fn end_of(&self, acquire: &LockOptions, now: Instant) -> Instant {
        let deadlines = [acquire.timeout, acquire.retry.and_then(|retry| retry.timeout)];
        let nearest = deadlines.into_iter().flatten().min();
        // A fence may need a second round.
        let second = Duration::from_nanos(self.plan.node_timeout);
        let second = if acquire.is_fenced { second } else { Duration::ZERO };
        // Where nodes lack the command for several keys, a call asks again by SETs. For a slot it asks
        // by one SET, then for all others, and once more where nodes name different slots.
        let rounds = if self.plan.slots { 4 } else { 1 + u32::from(self.plan.sets > 0) };
        let once = acquire.retry.is_none().then(|| (self.round_time() + second) * rounds);
        let nearest = nearest.filter(|deadline| !deadline.is_zero()).into_iter().chain(once).min();
        nearest.map_or(Instant::MAX, |deadline| now + deadline)
    }

    /// No operation goes on after its deadline, except for the time that the client stood still.
    pub(super) fn check_ends(&mut self, client: usize) {
        let this = &self.clients[client];
        let late = this.tasks.iter().find(|task| {
            // The client's clock may be the faster one.
            let stood = Duration::from_nanos((this.stood - task.stood) * 9 / 8);
            let is_under_way = task.op.is_some() || task.call.is_some();
            is_under_way && task.ends < Instant::MAX && task.ends + stood < this.judged_at
        });
        if let Some(task) = late {
            let (now, ends, state) = (this.judged_at, task.ends, task.state);
            self.oracle.fail(Kind::Overdue, || {
                format!("client {client}: {state:?} was to end by {ends:?}, and goes on at {now:?}")
            });
        }
    }

    /// The part of a TTL that a client allows for clock rates.
    pub(super) fn drift_ms(&self, ttl_ms: u64) -> u64 {
        Drift::new(self.plan.drift_ppm as f64 / 1e6).unwrap_or_default().of_ms(ttl_ms)
    }

    /// A quorum has moved the deadline of a task's lease on. The round that did so began one
    /// validity before that deadline.
    pub(super) fn moved_on(&mut self, client: usize, task: usize, is_first: bool) {
        let this = &self.clients[client];
        let ttl_ms = this.tasks[task].ttl_ms;
        let validity: Global = (ttl_ms - self.drift_ms(ttl_ms)) * MS;
        let deadline = this.tasks[task].lease.and_then(|lease| this.engine.deadline(lease));
        let began =
            deadline.map_or(0, |deadline| this.clock.global(deadline.minus_nanos(validity)));
        let place = &mut self.clients[client].tasks[task];
        let is_new = place.deadline != deadline;
        if is_first {
            let first = deadline.unwrap_or_default().minus_nanos(validity);
            (place.first, place.extensions) = (first, 0);
        }
        (place.began, place.deadline) = (began, deadline);
        place.extensions += u32::from(is_new && !is_first);
        let this = &self.clients[client];
        let tokens = this.tasks[task].lease.map(|lease| this.tokens(lease)).unwrap_or_default();
        let taken_at = tokens.iter().find_map(|token| self.ledger.taken_at(token));
        self.oracle.check(
            Kind::NoGround,
            is_first || taken_at.is_none_or(|at| began <= at),
            || format!("client {client}: a lease is extended that was taken away at {taken_at:?}"),
        );
        let (place, plan) = (&self.clients[client].tasks[task], &self.plan);
        // Each of several keys has its own extensions.
        let is_single = place.more.is_empty();
        let is_often =
            is_single && plan.rare.max_extensions.is_some_and(|most| place.extensions > most);
        let longest = plan.rare.max_hold.map(|hold| place.first + hold);
        let is_long = longest.is_some_and(|longest| deadline > Some(longest));
        self.oracle.check(Kind::LimitIgnored, is_first || !(is_often || is_long), || {
            format!("client {client}: extension {} to {deadline:?}", place.extensions)
        });
    }

    /// An answer read at `now` must not move the deadline of a kept lease that was over. Its holder
    /// may have seen the end.
    pub(super) fn check_moved(&mut self, client: usize, now: Instant) {
        let this = &mut self.clients[client];
        for task in this.tasks.iter_mut().filter(|task| task.is_kept) {
            let deadline = task.lease.and_then(|lease| this.engine.deadline(lease));
            let was_over = task.told.is_some_and(|told| told <= now);
            self.oracle.check(Kind::DeadlineMoved, !was_over || deadline <= task.told, || {
                format!("client {client}: a lease was over at {now:?}, and goes on")
            });
            task.told = deadline;
        }
    }
}
