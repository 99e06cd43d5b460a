//! A call that waits for its lock: its state, its times, and its actions. It asks nodes, tells a client that
//! it waits, listens, and tries.

use std::time::Duration;

use smallvec::SmallVec;

use super::message::{
    Carried, Entry, Listed, MessageKind, RawToken, WaiterId, token_of, wait_ms, waited_us,
};
use super::outside::{Action, Actions, Successor, Text, View, WaitCall};
use crate::client_name::ClientId;
use crate::node::Phase;
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;
use crate::witness::{Sight, saw};

/// The safety poll comes after this time, and a random part of it more.
const POLL: Duration = Duration::from_millis(100);

/// A call without an offer makes its safety poll no sooner than this, where an answer takes `trip`.
pub(in crate::engine) fn safety_poll(trip: Duration) -> Duration {
    POLL.max(trip * POLL_TRIPS)
}

/// When a call that queued behind another call makes its first poll. Two calls that wait for each
/// other find out this way. Each call ahead adds [`POLL_A_TURN`].
pub(super) const FIRST_POLL: Duration = Duration::from_millis(10);
pub(super) const POLL_A_TURN: Duration = Duration::from_millis(2);

/// The same times in round trips. The longer of the two counts: a message under way must have had
/// the time to come.
const POLL_TRIPS: u32 = 16;
pub(super) const FIRST_POLL_TRIPS: u32 = 4;
pub(super) const POLL_A_TURN_TRIPS: u32 = 2;

/// A call announces itself again if a poll this long after its last announcement finds another
/// holder. After `RENEW_MAX`, a call with an offer always does. The list goes from holder to
/// holder, and may be lost. A holder hands no lock over to a call that it has not heard of for
/// `SILENT_MAX`.
const RENEW_MIN: Duration = Duration::from_millis(100);
pub(super) const RENEW_MAX: Duration = Duration::from_millis(250);
const RENEW_TRIPS: u32 = 8;

/// How long a call waits until it renews its offer, where a request takes `trip` to be answered.
pub(super) fn renew_after(trip: Duration) -> Duration {
    (trip * RENEW_TRIPS).clamp(RENEW_MIN, RENEW_MAX)
}

/// How often a poll that finds the key gone looks again. While waiters are woken one after another,
/// the nodes lack the key about half of the time.
pub(super) const LOOKS: u8 = 3;
/// The pause before each look, to which the call adds a random part of it.
pub(super) const NEXT_LOOK: Duration = Duration::from_millis(1);

/// A call that no holder knows of polls each node no more often than this.
const NODE_PACE: Duration = Duration::from_millis(300);

/// From the fourth attempt in a row on, a call first pauses for this long, or for up to five times
/// as long.
const PAUSE: Duration = Duration::from_millis(1);
const TRIES_IN_ROW: u32 = 3;

/// Where a round trip is long, the call pauses for at least this part of it. In step with a holder
/// that reacquires again and again, the call would come too late each time.
const PAUSE_PARTS: u32 = 4;

/// How often a new holder makes the call ask all denying nodes again.
const CHANGES_MAX: u8 = 4;

/// If the turn comes this often with the same token, the call no longer tells that token's client.
/// The first such turn may come while some nodes have yet to run the release.
const TURNS_IN_VAIN: u8 = 2;

/// A call remembers the tokens of at most so many clients that gave it its turn.
const TURNED_MAX: usize = 4;

/// The state of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitState {
    /// An attempt is under way, or won.
    Trying,
    /// An attempt is about to be made.
    Pausing,
    /// A part of the nodes has handed the lock over.
    Receiving,
    /// The call's plan makes the next attempt.
    Failed,
    /// An answer is awaited.
    Asking(Question),
    /// The call waits until it is woken or a timer is due.
    Still,
}

/// A question that a call has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The call asks a node for the holder and the key's TTL, and has the node tell the holder.
    Introduction,
    /// The call announces itself to the last call of the queue, which has `ahead` calls before it.
    Place { ahead: u32 },
    /// The call asks a node for the holder's token.
    Poll,
}

/// The fate of the introduction that went out with a first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Early {
    #[default]
    None,
    /// The answer is awaited.
    Asked,
    /// The holder was told.
    Heard,
}

/// The facts that a call knows about the holder of the key.
#[derive(Clone, Debug)]
pub(super) struct KnownHolder {
    /// The token, if a Redbolt client drew it.
    pub(super) token: Option<RawToken>,
    /// When the key's TTL ends, if known.
    pub(super) ends: Instant,
    /// A client received the call's announcement.
    pub(super) is_heard: bool,
    /// The call is, or soon will be, on the list of waiters that goes with the lock.
    pub(super) is_listed: bool,
    /// How many looks in a row found the key gone.
    pub(super) gone: u8,
    /// How often another holder was seen since the last attempt, or since the call was still.
    pub(super) changes: u8,
}

impl KnownHolder {
    pub(super) const UNKNOWN: Self = Self {
        token: None,
        ends: Instant::MAX,
        is_heard: false,
        is_listed: false,
        gone: 0,
        changes: 0,
    };
}

/// The parts that an input may use besides the waiter itself.
pub(super) struct Scene<'a, 'b> {
    pub(super) view: &'a mut View<'b>,
    pub(super) actions: &'a mut Actions,
    /// How many questions all calls have asked so far.
    pub(super) questions: &'a mut u32,
    pub(super) node_timeout: Duration,
}

/// A placeholder for the token that a node puts in.
const NOBODY: RawToken = [0; 20];

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) op: OpIndex,
    pub(super) call: WaitCall,
    pub(super) id: WaiterId,
    /// When it began to wait.
    pub(super) since: Instant,
    /// `None` once the call has ended, until that is reported.
    pub(super) state: Option<WaitState>,
    /// Denied attempts since the call last listened, or had its turn from a new holder.
    pub(super) tries: u32,
    /// The nodes that denied the last attempt; all, if there was none.
    pub(super) denied: NodeMask,
    /// The nodes of `denied` that were asked in vain.
    pub(super) asked: NodeMask,
    /// The node of the present or last question, or the node that the next attempt asks first.
    pub(super) node: Option<NodeId>,
    /// Tells answers to the last question from those to earlier ones.
    pub(super) phase: Phase,
    /// When its timer is due; earlier timers mean nothing.
    pub(super) due: Instant,
    pub(super) holder: KnownHolder,
    /// The calls that wait behind this call.
    pub(super) carried: Carried,
    /// The token for which the last announcement was meant.
    pub(super) told: Option<RawToken>,
    pub(super) told_at: Instant,
    /// The last announcement carried an offer.
    pub(super) has_offer: bool,
    pub(super) early: Early,
    /// The client that was told may itself have lost its attempt.
    pub(super) is_doubtful: bool,
    /// The client of a waiter behind this call, which announced itself while this call tried or
    /// asked for the holder.
    pub(super) follower: Option<ClientId>,
    /// How many transfers in a row brought the lock that the call has won.
    pub(super) row: u8,
    /// The tokens whose clients gave the call its turn, and how often.
    pub(super) turned: SmallVec<[(Option<RawToken>, u8); 1]>,
}

impl Waiter {
    /// A call whose attempt is under way, or which the nodes `denied` denied.
    pub(super) fn new(
        op: OpIndex,
        call: WaitCall,
        id: WaiterId,
        denied: NodeMask,
        now: Instant,
    ) -> Self {
        Self {
            op,
            call,
            id,
            since: now,
            state: Some(WaitState::Trying),
            tries: 0,
            denied,
            asked: NodeMask::EMPTY,
            node: None,
            phase: Phase::default(),
            due: Instant::MAX,
            holder: KnownHolder::UNKNOWN,
            carried: Carried::default(),
            told: None,
            told_at: now,
            has_offer: false,
            early: Early::None,
            is_doubtful: false,
            follower: None,
            row: 0,
            turned: SmallVec::new(),
        }
    }

    /// The call as its own client lists it.
    pub(super) fn entry(&self, node: NodeId, view: &View<'_>) -> Entry {
        Entry {
            id: self.id,
            until: self.call.deadline,
            since: self.since,
            not_before: self.since,
            node,
            seen: view.now,
            offer: None,
        }
    }

    /// The call has ended: further inputs are not for it.
    pub(super) const fn over(&mut self) {
        self.state = None;
    }

    /// Whether the node's answer to the question of this phase is awaited.
    pub(super) fn is_awaited(&self, node: NodeId, phase: Phase) -> bool {
        let is_asking =
            matches!(self.state, Some(WaitState::Asking(_))) || self.early == Early::Asked;
        is_asking && self.phase == phase && self.node == Some(node)
    }

    /// The holder that was told of the call, and through which node.
    pub(super) fn holder_told(&self) -> Option<(RawToken, NodeId)> {
        self.holder.token.zip(self.node).filter(|_| self.holder.is_heard)
    }

    // ---- actions ----

    /// Asks the node for the holder's token, and has the node tell that client of the call.
    pub(super) fn introduce(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) {
        let phase = self.next_question(node, scene);
        // A turn may come before the answer that names the holder.
        (self.follower, self.told) = (None, self.holder.token);
        let text = self.announcement((&NOBODY, 0), scene);
        scene.actions.push(Action::Introduce { op: self.op, node, phase, text });
    }

    /// The node names the holder and the key's remaining TTL, and says whether it told the holder.
    pub(super) fn introduced(
        &mut self,
        (holder, remaining, is_heard): (Option<RawToken>, Option<u32>, bool),
        scene: &Scene<'_, '_>,
    ) {
        self.note_holder(holder);
        // The key still exists when the milliseconds that PTTL gave have passed.
        let ends = |left: u32| scene.view.now.plus_millis(left.saturating_add(1));
        self.holder.ends = remaining.map_or(Instant::MAX, ends);
        self.told = holder;
        self.note_heard(is_heard);
    }

    /// Asks the node for the holder's token.
    pub(super) fn poll(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) -> WaitState {
        let phase = self.next_question(node, scene);
        scene.actions.push(Action::Poll { op: self.op, node, phase });
        WaitState::Asking(Question::Poll)
    }

    /// This call and another wait for each other: this call tries, at one node before the others.
    pub(super) fn break_ring(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        self.note_turn();
        let reach = scene.view.reach;
        let gate = reach.first_with_channel(reach.all, self.call.key.as_slice());
        self.try_at(gate, scene)
    }

    /// Waits behind a call that has its turn first.
    pub(super) fn queue(&mut self, last: Successor, scene: &mut Scene<'_, '_>) -> WaitState {
        let token = token_of(last.last());
        // That call also hears if this call gives up.
        self.holder.token = Some(token);
        // If calls wait behind the first call, the message counts a hop, as if that call had
        // forwarded it.
        let hops = u8::from(!last.behind.is_empty());
        self.tell(last.node, (&token, hops), scene);
        let ahead = u32::try_from(last.behind.len()).unwrap_or(u32::MAX);
        WaitState::Asking(Question::Place { ahead })
    }

    /// Publishes that the call waits, and which calls wait behind it.
    pub(super) fn tell(
        &mut self,
        node: NodeId,
        (to, hops): (&RawToken, u8),
        scene: &mut Scene<'_, '_>,
    ) {
        let phase = self.next_question(node, scene);
        let text = self.announcement((to, hops), scene);
        self.told = Some(*to);
        scene.actions.push(Action::Announce { op: self.op, node, phase, text });
    }

    fn announcement(&mut self, (to, hops): (&RawToken, u8), scene: &mut Scene<'_, '_>) -> Text {
        let now = scene.view.now;
        (self.told_at, self.has_offer) = (now, self.call.takes_over);
        let wait_ms = wait_ms(now, self.call.deadline);
        let waited_us = waited_us(self.since, now);
        let sender = Listed { id: self.id, wait_ms, waited_us, age_ms: 0, offer: None };
        let key = self.call.key.as_slice();
        if self.holder.is_listed {
            // The waiters behind the call stay with it: the lock may be on its way already.
            let nobody = std::iter::empty();
            return scene.actions.write((MessageKind::Announce, hops), sender, to, nobody, key);
        }
        let list = self.carried.name_all(now);
        scene.actions.write((MessageKind::Announce, hops), sender, to, list, key)
    }

    /// Begins a new question; answers to older ones mean nothing from now on.
    pub(super) fn next_question(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) -> Phase {
        *scene.questions = scene.questions.wrapping_add(1);
        self.phase = Phase::of(*scene.questions);
        self.node = Some(node);
        self.wait_until(scene.view.now + scene.node_timeout, scene);
        self.phase
    }

    pub(super) fn note_heard(&mut self, is_heard: bool) {
        if !is_heard {
            saw(Sight::Unheard);
        }
        self.holder.is_heard = rules::will_be_woken(is_heard);
        if self.holder.is_heard && !self.holder.is_listed {
            self.holder.is_listed = true;
            self.carried.hand_on();
        }
    }

    pub(super) fn note_holder(&mut self, holder: Option<RawToken>) {
        let before = std::mem::replace(&mut self.holder.token, holder);
        self.holder.gone = 0;
        // Nodes with different leftover tokens look like a lock that keeps changing hands. After a few
        // changes the call assumes that the holder stays.
        let (is_same, changes) = (holder == before, self.holder.changes);
        self.holder.changes = match (is_same, changes < CHANGES_MAX) {
            (false, true) => changes + 1,
            (true, false) => 0,
            (true, true) | (false, false) => return,
        };
        self.asked = NodeMask::EMPTY;
    }

    /// The call has its turn. The count of its tries restarts on progress only: when the holder
    /// differs from the holders at earlier turns.
    pub(super) fn note_turn(&mut self) {
        // `told`, not the holder: that client may give the turn before an answer names the holder.
        let told = self.told;
        if let Some((_, turns)) = self.turned.iter_mut().find(|(token, _)| *token == told) {
            *turns = turns.saturating_add(1);
            return;
        }
        self.tries = 0;
        if self.turned.len() >= TURNED_MAX {
            self.turned.remove(0);
        }
        self.turned.push((told, 1));
    }

    /// Whether the client that drew the token gave the lock away, though nodes still have the
    /// token. That client no longer knows the token, and need not be told again.
    pub(super) fn is_given_away(&self, token: Option<RawToken>) -> bool {
        let turned = self.turned.iter().find(|(told, _)| *told == token);
        rules::is_given_away(turned.is_some_and(|(_, turns)| *turns >= TURNS_IN_VAIN))
    }

    /// Whether the holder seems to be a call of `client`.
    pub(super) fn is_behind(&self, client: ClientId) -> bool {
        let holder = self.holder.token.filter(|_| !self.is_given_away(self.holder.token));
        holder.is_some_and(|token| ClientId::of(&token) == client)
    }

    /// Stays still until the safety poll is due, unless something comes before it.
    pub(super) fn listen_on(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        let poll = self.poll_after(scene);
        self.listen(poll, scene)
    }

    /// When the safety poll comes, at the soonest.
    pub(super) fn poll_after(&self, scene: &Scene<'_, '_>) -> Duration {
        let poll = safety_poll(scene.view.round_trip);
        if self.has_offer { poll.min(RENEW_MAX) } else { poll }
    }

    /// Stays still until it is woken, the key's TTL ends or the safety poll is due.
    pub(super) fn listen(&mut self, poll: Duration, scene: &mut Scene<'_, '_>) -> WaitState {
        let now = scene.view.now;
        let poll = rules::safety_poll(now + poll.mul_f64(1.0 + (scene.view.share)()));
        (self.holder.changes, self.tries) = (0, 0);
        self.due = poll.min(self.holder.ends.max(now));
        scene.actions.push(Action::Listen { op: self.op, at: self.due });
        WaitState::Still
    }

    /// Stays still, unheard by any holder, until the key's TTL ends or the next poll is due. The
    /// call's retry delay is its pace.
    pub(super) fn rest(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        self.holder.is_heard = false;
        let (call, share) = (&self.call, (scene.view.share)());
        let delay = call.delay.saturating_add(call.jitter.mul_f64(share));
        let polled = self.denied.intersection(scene.view.reach.askable).count().max(1);
        let poll = scene.view.now + delay.max(NODE_PACE / polled);
        self.wait_until(poll.min(self.holder.ends), scene);
        WaitState::Still
    }

    /// The next attempt, at once or, where several failed in a row, after a short pause.
    pub(super) fn try_at(&mut self, gate: Option<NodeId>, scene: &mut Scene<'_, '_>) -> WaitState {
        let share = (scene.view.share)();
        self.node = gate;
        if self.tries >= TRIES_IN_ROW {
            let far = scene.view.round_trip / PAUSE_PARTS;
            if far > PAUSE {
                // A call that asks one node first always loses to a holder that reacquires at once.
                self.node = None;
            }
            let pause = PAUSE.max(far).mul_f64(1.0 + 4.0 * share);
            self.wait_until(scene.view.now + pause, scene);
            return WaitState::Pausing;
        }
        self.begin(gate, scene)
    }

    pub(super) fn begin(&mut self, gate: Option<NodeId>, scene: &mut Scene<'_, '_>) -> WaitState {
        self.due = Instant::MAX;
        self.row = 0;
        self.early = Early::None;
        scene.actions.push(Action::Try { op: self.op, gate });
        WaitState::Trying
    }

    pub(super) fn wait_until(&mut self, at: Instant, scene: &mut Scene<'_, '_>) {
        self.due = at;
        scene.actions.push(Action::Timer { op: self.op, at });
    }
}
