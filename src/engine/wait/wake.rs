//! Waking the first of those who wait: one message behind the release, carrying the rest of the
//! list; the next node, then the next waiter, where nobody hears it.

use std::collections::VecDeque;

use super::hash;
use super::message::{self, Kind, Listed, WaiterId, client_of, token_of, waiter_id};
use super::queue::Waiter;
use crate::command::{Answer, append_publish};
use crate::engine::door::Engine;
use crate::engine::spans::traced;
use crate::key::Key;
use crate::mutant::{self, Mutant};
use crate::node::{ChannelName, Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::slab::{OpIndex, Slab, WakeIndex};
use crate::time::Instant;
use crate::witness::{Sight, saw};

/// Wakes that are remembered, to queue behind whom they woke.
const RECENT_MAX: usize = 64;

/// A wake whose answer is awaited.
#[derive(Debug)]
struct Wake {
    key: Key,
    to: Waiter,
    rest: Vec<Waiter>,
    tried: NodeMask,
    /// Whether the turn is passed on by it, rather than a guess.
    is_turn: bool,
}

impl Wake {
    /// The next of those who wait is to be woken instead; whether there is one.
    fn turn_to_next(&mut self) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        (self.to, self.tried) = (self.rest.remove(0), NodeMask::EMPTY);
        true
    }
}

/// Somebody who was woken a moment ago.
#[derive(Clone, Copy, Debug)]
pub(super) struct Successor {
    pub(super) id: WaiterId,
    /// The node that the wake went over: what is sent by it comes behind the wake.
    pub(super) node: NodeId,
    /// It was given the turn.
    pub(super) is_turn: bool,
    /// How many wait behind it.
    pub(super) behind: u32,
    until: Instant,
}

/// The wakes under way, and the last ones.
#[derive(Debug, Default)]
pub(in crate::engine) struct Wakes {
    wakes: Slab<WakeIndex, Option<Wake>>,
    recent: VecDeque<(u64, Successor)>,
}

impl Wakes {
    /// Whom this client woke for a key a moment ago.
    pub(super) fn successor(&self, hash: u64, now: Instant) -> Option<Successor> {
        let mut recent = self.recent.iter().rev();
        recent.find(|(other, last)| *other == hash && now < last.until).map(|&(_, last)| last)
    }

    /// Whether anybody was woken lately.
    #[inline]
    pub(in crate::engine) fn has_recent(&self) -> bool {
        !self.recent.is_empty()
    }

    fn keep(&mut self, wake: Wake) -> Option<WakeIndex> {
        self.wakes.insert(Some(wake))
    }

    fn take(&mut self, index: WakeIndex) -> Option<Wake> {
        let wake = self.wakes.at_mut(index).take()?;
        self.wakes.give_back(index);
        Some(wake)
    }

    /// Those long woken cost the next acquisitions nothing.
    pub(super) fn forget_past(&mut self, now: Instant) {
        self.recent.retain(|(_, last)| now < last.until);
    }

    pub(super) fn forget(&mut self, hash: u64) {
        self.recent.retain(|&(other, _)| other != hash);
    }

    fn note(&mut self, hash: u64, mut successor: Successor) {
        // Who was given the turn, and is woken once more, still has it.
        let mut known = self.recent.iter().filter(|&&(other, _)| other == hash);
        successor.is_turn |= known.any(|(_, last)| last.id == successor.id && last.is_turn);
        self.forget(hash);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((hash, successor));
    }
}

impl Engine {
    /// Wakes the first of the list that still waits.
    pub(in crate::engine) fn wake_first(&mut self, key: Key, list: Vec<Waiter>, now: Now) {
        self.wake_first_as(true, key, list, now);
    }

    /// As [`wake_first`](Self::wake_first); whether the turn is this client's to give.
    pub(super) fn wake_first_as(
        &mut self,
        is_turn: bool,
        key: Key,
        mut list: Vec<Waiter>,
        now: Now,
    ) {
        list.retain(|waiter| now.real < waiter.until);
        if list.is_empty() || mutant::is(Mutant::NobodyWoken) {
            return;
        }
        let to = list.remove(0);
        if mutant::is(Mutant::ListLost) {
            list.clear();
        }
        if !list.is_empty() {
            saw(Sight::HandedOn);
        }
        self.wake(Wake { key, to, rest: list, tried: NodeMask::EMPTY, is_turn }, now);
    }

    /// Sends a wake by the node on which its waiter was heard, or the next that was not tried. A call
    /// of this client is given its turn at once: its SETs go behind the release.
    fn wake(&mut self, mut wake: Wake, now: Now) {
        loop {
            if self.is_own(&wake.to.id) {
                if let Some(index) = self.call_of(wake.to.id, wake.key.as_bytes()) {
                    return self.pass_within(index, wake, now);
                }
                // It has given up.
                if wake.turn_to_next() {
                    continue;
                }
                return;
            }
            let left = self.locks.nodes.all().without(wake.tried);
            let near = Some(wake.to.node)
                .filter(|&node| left.contains(node) && self.locks.nodes.at(node).has_channel());
            let node = near.or_else(|| self.first_with_channel(left, wake.key.as_bytes()));
            let Some(node) = node else {
                // No node reaches this one.
                if wake.turn_to_next() {
                    continue;
                }
                return;
            };
            if self.write_wake(node, &wake) {
                self.note_successor(node, &wake, now);
                self.locks.counts.wakes_sent.up();
                traced!(DEBUG: self.locks.trace_wake(node, &wake.key));
                let Some(index) = self.wakes.keep(wake) else { return };
                let request = Request::Wake(index);
                return self.locks.nodes.wake(node, request, &self.locks.scratch, now.attended);
            }
            wake.tried.insert(node);
        }
    }

    /// The call of this client that is the first of a wake has its turn.
    fn pass_within(&mut self, index: OpIndex, wake: Wake, now: Now) {
        if mutant::is(Mutant::SiblingNotWoken) {
            return;
        }
        saw(Sight::PassedWithin);
        self.note_successor(wake.to.node, &wake, now);
        self.take_turn(index, wake.rest, now);
    }

    /// Who comes late for the one that is woken is sent on to it, or queues behind it.
    fn note_successor(&mut self, node: NodeId, wake: &Wake, now: Now) {
        let until = now.real + self.locks.settings.node_timeout * 2;
        let (id, is_turn) = (wake.to.id, wake.is_turn);
        let behind = u32::try_from(wake.rest.len()).unwrap_or(u32::MAX);
        let successor = Successor { id, node, is_turn, behind, until };
        self.wakes.note(hash(wake.key.as_bytes()), successor);
    }

    /// Encodes a wake; whether the node has room for it.
    fn write_wake(&mut self, node: NodeId, wake: &Wake) -> bool {
        let now = self.locks.last_call;
        // What matters is who is woken, not by which call.
        let sender = Listed { id: waiter_id(self.locks.client_id, 0), wait_ms: 0 };
        let token = token_of(wake.to.id);
        let rest = wake.rest.iter().map(|waiter| waiter.listed(now));
        let key = wake.key.as_bytes();
        self.text.clear();
        message::append(&mut self.text, (Kind::Wake, 0), sender, &token, rest, key);
        self.locks.scratch.clear();
        append_publish(
            &mut self.locks.scratch,
            ChannelName::of(client_of(&token)).as_bytes(),
            &self.text,
        );
        self.locks.nodes.at(node).has_room_in_step(self.locks.scratch.len())
    }

    /// A node said how many heard a wake.
    pub(in crate::engine) fn wake_answered(
        &mut self,
        id: NodeId,
        index: WakeIndex,
        answer: Answer,
        now: Now,
    ) {
        let Some(wake) = self.wakes.take(index) else { return };
        if matches!(answer, Answer::Zero | Answer::Refused(_)) {
            self.wake_unheard(id, wake, now);
        }
    }

    /// The connection ended before the wake was answered.
    pub(in crate::engine) fn wake_lost(&mut self, id: NodeId, index: WakeIndex, now: Now) {
        if let Some(wake) = self.wakes.take(index) {
            self.wake_unheard(id, wake, now);
        }
    }

    fn wake_unheard(&mut self, id: NodeId, mut wake: Wake, now: Now) {
        self.wakes.forget(hash(wake.key.as_bytes()));
        wake.tried.insert(id);
        self.wake(wake, now);
    }
}
