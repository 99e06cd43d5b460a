//! [`Ledger`]: what the caller of the engine knows, and what must therefore hold.

use super::peer::Peer;
use crate::engine::{Engine, LeaseId, OpId};
use crate::time::Instant;

/// An operation that has not been reported.
pub(super) struct Ticket {
    pub(super) op: OpId,
    pub(super) purpose: Purpose,
    /// Ends only when it is won or cancelled.
    pub(super) is_endless: bool,
}

pub(super) enum Purpose {
    Lock { key: Vec<u8>, min_validity: std::time::Duration },
    Extend { lease: LeaseId, best: Instant },
    Adopt { name: Name, best: Instant, is_shared: bool },
    Unlock { name: Name },
    Query { parts: usize },
}

/// Key and token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) key: Vec<u8>,
    pub(super) token: Vec<u8>,
}

pub(super) struct Held {
    pub(super) id: LeaseId,
    pub(super) name: Name,
    /// The end that the engine last said.
    pub(super) deadline: Instant,
    /// Somebody else may end or shorten it: the caller gave its token to another call.
    pub(super) is_shared: bool,
}

/// How far the nodes are to be believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    /// They answered nothing but what a server would.
    pub(super) honest: bool,
    /// None has lost its memory.
    pub(super) remembering: bool,
    /// None has lost its memory without the guard's noticing.
    pub(super) guarded: bool,
    /// None has run a dead connection's commands behind a newer one's.
    pub(super) in_order: bool,
}

pub(super) struct Ledger {
    pub(super) tickets: Vec<Ticket>,
    pub(super) leases: Vec<Held>,
    /// Leases that were given away, with the end they had.
    pub(super) detached: Vec<(Name, Instant)>,
    /// Every name that was ever a lease.
    pub(super) names: Vec<Name>,
    /// Names that somebody was told to release.
    pub(super) spent: Vec<Name>,
    pub(super) trust: Trust,
}

impl Ledger {
    pub(super) const fn new() -> Self {
        let trust = Trust { honest: true, remembering: true, guarded: true, in_order: true };
        Self {
            tickets: Vec::new(),
            leases: Vec::new(),
            detached: Vec::new(),
            names: Vec::new(),
            spent: Vec::new(),
            trust,
        }
    }

    pub(super) fn open(&mut self, op: OpId, purpose: Purpose, is_endless: bool) {
        assert!(self.tickets.iter().all(|ticket| ticket.op != op), "two operations with one id");
        self.tickets.push(Ticket { op, purpose, is_endless });
    }

    /// The operation was reported; it must not be reported twice.
    pub(super) fn close(&mut self, op: OpId) -> Ticket {
        let place = self.tickets.iter().position(|ticket| ticket.op == op);
        self.tickets.swap_remove(place.expect("an event for an operation under way"))
    }

    /// A new lease: nobody may have one of this key now.
    pub(super) fn hold(&mut self, held: Held, now: Instant) {
        if self.trust.honest && self.trust.guarded && !held.is_shared {
            let is_other = |name: &Name| name.key == held.name.key && name.token != held.name.token;
            for other in &self.leases {
                assert!(
                    other.is_shared || !is_other(&other.name) || other.deadline <= now,
                    "two leases of one key until {:?} and {:?}",
                    other.deadline,
                    held.deadline
                );
            }
            for (name, deadline) in &self.detached {
                let is_over = *deadline <= now || self.spent.contains(name);
                assert!(is_over || !is_other(name), "a key of a lease that was given away");
            }
        }
        self.names.push(held.name.clone());
        self.leases.push(held);
    }

    /// The lease ends by the caller's will.
    pub(super) fn take(&mut self, index: usize) -> Held {
        self.leases.swap_remove(index)
    }

    /// A call is made with this name; whatever else uses it is no longer safe from it.
    pub(super) fn share(&mut self, name: &Name) -> bool {
        let mut is_shared = self.spent.contains(name);
        for held in self.leases.iter_mut().filter(|held| held.name == *name) {
            held.is_shared = true;
            is_shared = true;
        }
        for ticket in &mut self.tickets {
            if let Purpose::Adopt { name: other, is_shared: shared, .. } = &mut ticket.purpose
                && other == name
            {
                *shared = true;
                is_shared = true;
            }
        }
        is_shared
    }

    /// What must hold after every step.
    pub(super) fn audit(&mut self, engine: &Engine, peers: &mut [Peer], now: Instant) {
        assert_eq!(engine.in_flight(), self.tickets.len(), "each operation has one event");
        for held in &mut self.leases {
            let deadline = engine.deadline(held.id).expect("a lease is held until it is given up");
            let extended = self.tickets.iter().any(|ticket| {
                matches!(ticket.purpose, Purpose::Extend { lease, best }
                    if lease == held.id && best == deadline)
            });
            assert!(
                deadline <= held.deadline || extended,
                "a deadline moved from {:?} to {deadline:?} by no extension",
                held.deadline
            );
            held.deadline = deadline;
            let (key, token) = engine.lease_name(held.id).expect("it is held");
            assert!(key == held.name.key && token.as_bytes() == held.name.token);
            assert!(engine.votes(held.id).count() >= engine.quorum(), "a lease of too few votes");
            let remaining = engine.remaining_at(held.id, now);
            assert_eq!(remaining.is_zero(), now >= deadline);
        }
        if self.trust.honest && self.trust.remembering {
            for held in &self.leases {
                if now < held.deadline && !held.is_shared {
                    let count = holders(peers, &held.name, now);
                    assert!(
                        count >= engine.quorum() as usize,
                        "a lease until {:?} that {count} nodes hold at {now:?}",
                        held.deadline
                    );
                }
            }
        }
    }

    /// A release ended otherwise than unknown: no quorum can hold the key.
    pub(super) fn check_released(
        &self,
        engine: &Engine,
        name: &Name,
        peers: &mut [Peer],
        now: Instant,
    ) {
        if self.trust.honest && self.trust.in_order {
            let count = holders(peers, name, now);
            assert!(count < engine.quorum() as usize, "{count} nodes hold what was released");
        }
    }
}

/// How many nodes hold the name's token under its key.
pub(super) fn holders(peers: &mut [Peer], name: &Name, now: Instant) -> usize {
    let holds = |peer: &mut Peer| peer.value(&name.key, now) == Some(&name.token);
    peers.iter_mut().map(holds).filter(|&holds| holds).count()
}
