//! One call that waits for its lock.
//!
//! # The table
//!
//! *Asks the next* means: the call asks the first node that denied the attempt, and was not asked
//! in vain, who holds the key and for how long. Without such a node there is no holder to tell, and
//! the call *looks*: at one node after the other, each of which then tracks the key's next change.
//! An attempt *at one node* asks the others when that node has granted; the third in a row, or a
//! later one, comes after a pause.
//!
//! | state | input | next state | what is done |
//! |---|---|---|---|
//! | any | denied | asking: holder | asks the next |
//! | any | failed | failed | nothing: the call's plan says when the next attempt is |
//! | failed | retry | trying | an attempt |
//! | trying | behind | asking: place | announces itself to the call that has its turn first |
//! | trying | turn | trying | the list that comes with it is kept |
//! | any other | turn | trying | the same, and an attempt |
//! | any other than trying | transferred in part | receiving | the list that comes with it is kept; the engine has the votes |
//! | any | transferred | trying | the same: the lock is won |
//! | receiving | due | trying | an attempt: no more of it came |
//! | asking after it told, still | a follower for which it waits | trying | an attempt at one node: each waits for the other |
//! | asking: holder, look | a holder | the same | the answer for how long comes next |
//! | | remaining | asking: announcement | tells the holder and asks who holds the key now; looks if the holder was told in vain, or is unknown |
//! | | gone | trying | an attempt at that node |
//! | asking: announcement | heard | the same | who received it has the calls that it named, and passes them on where it has let go |
//! | | a holder, behind that | still: listening | |
//! | | the same holder otherwise | asking: holder | asks the next |
//! | asking: poll | the holder that was told, or any while the call was told a moment ago | still: listening | the list goes with the lock |
//! | | the holder that was told of an offer a while ago | asking: announcement | tells the holder again |
//! | asking: announcement, poll | another holder otherwise | asking: announcement | tells that holder; looks if it is unknown |
//! | | gone, while listed with a holder | still: listening | looks again soon, some times: the lock may be changing hands |
//! | | gone, otherwise or once more | trying | an attempt at that node |
//! | asking: place | heard | still: listening | |
//! | | not heard, or due | trying | an attempt |
//! | asking: holder, announcement | unwritten | asking: holder | asks the next |
//! | asking: look | unwritten | still: looking | the next look comes later |
//! | asking: place, poll | unwritten | trying | an attempt |
//! | asking otherwise | unanswered, or due | asking: holder | asks the next |
//! | pausing | due | trying | the postponed attempt |
//! | still | due, and the key's TTL has ended | trying | an attempt at the node that was asked last |
//! | still: listening | due | asking: poll | asks who holds the key |
//! | still: looking | due | asking: look | looks at the next node |
//! | | changed | the same | an attempt at that node soon |
//! | | untracked | the same | the next look comes when the plan says |

use std::time::Duration;

use super::list::{Carried, Entry, List};
use super::message::{Kind, Listed, RawToken, WaiterId, token_of, wait_ms, waited_us};
use super::outside::{Action, Answer, Call, Input, Reach, View};
use super::state::{
    CHANGES_MAX, FIRST_POLL, FIRST_POLL_TRIPS, Holder, LOOKS, NEXT_LOOK, PAUSE, PAUSE_PARTS, POLL,
    POLL_A_TURN, POLL_A_TURN_TRIPS, POLL_MIN, POLL_TRIPS, Question, RENEW_MAX, REST_MIN, Scene,
    State, Still, TRACKED_POLL, TRIES_IN_ROW, renew_after,
};
use super::wakes::Successor;
use crate::client_name::ClientId;
use crate::node::Phase;
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;
use crate::witness::{Sight, saw};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Waiter {
    op: OpIndex,
    pub(super) call: Call,
    pub(super) id: WaiterId,
    /// When it began to wait.
    since: Instant,
    /// `None` once the call has ended, until that is reported.
    pub(super) state: Option<State>,
    /// Attempts since the call was last still.
    tries: u32,
    /// The nodes that denied the last attempt; all, if there was none.
    pub(super) denied: NodeMask,
    /// The nodes of `denied` that were asked in vain.
    asked: NodeMask,
    /// The node of the present or last question, or the one that the next attempt asks first.
    node: Option<NodeId>,
    /// Tells answers to the last question from those to earlier ones.
    phase: Phase,
    /// When its timer is due; earlier timers mean nothing.
    pub(super) due: Instant,
    holder: Holder,
    /// When a node was last looked at since the last attempt.
    looked_at: Option<Instant>,
    /// The nodes that track the key's next change, as far as known.
    pub(super) tracked: NodeMask,
    /// The calls behind this one.
    pub(super) carried: Carried,
    /// Who was last told of the call, when, and whether of an offer too.
    told: Option<RawToken>,
    told_at: Instant,
    has_offer: bool,
    /// How many transfers in a row brought the lock that the call has won.
    pub(super) row: u8,
}

impl Waiter {
    /// A call whose attempt is under way, or which the nodes `denied` denied.
    pub(super) fn new(
        op: OpIndex,
        call: Call,
        id: WaiterId,
        denied: NodeMask,
        now: Instant,
    ) -> Self {
        Self {
            op,
            call,
            id,
            since: now,
            state: Some(State::Trying),
            tries: 0,
            denied,
            asked: NodeMask::EMPTY,
            node: None,
            phase: Phase::default(),
            due: Instant::MAX,
            holder: Holder::UNKNOWN,
            looked_at: None,
            tracked: NodeMask::EMPTY,
            carried: Carried::default(),
            told: None,
            told_at: now,
            has_offer: false,
            row: 0,
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

    pub(super) const fn is_over(&self) -> bool {
        self.state.is_none()
    }

    /// Whether the node's answer to the question of this phase is awaited.
    pub(super) fn is_awaited(&self, node: NodeId, phase: Phase) -> bool {
        let is_asking = matches!(self.state, Some(State::Asking(_)));
        is_asking && self.phase == phase && self.node == Some(node)
    }

    /// The holder that was told of the call, and through which node.
    pub(super) fn told(&self) -> Option<(RawToken, NodeId)> {
        self.holder.token.zip(self.node).filter(|_| self.holder.is_heard)
    }

    /// Takes an input: see the [table](self).
    pub(super) fn step(&mut self, input: Input, scene: &mut Scene<'_, '_>) {
        use {Input as I, Question as Q, State as S};
        let Some(state) = self.state else { return };
        let next = match (state, input) {
            (_, I::Denied(nodes)) => self.denied(nodes, scene),
            (_, I::Failed) => S::Failed,
            (_, I::Transferred { list, row }) => self.transferred(list, row, scene),
            (S::Failed, I::Retry) => self.begin(None, scene),
            (S::Trying, I::Behind(last)) => self.queue(last, scene),
            (S::Trying, I::Turn(list)) => {
                self.have_turn(list);
                state
            }
            (S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still(_), I::Turn(list)) => {
                self.have_turn(list);
                self.tries = 0;
                self.try_at(None, scene)
            }
            (
                S::Asking(Q::Announcement | Q::Place { .. } | Q::Poll) | S::Still(_),
                I::Follower(client),
            ) if rules::is_ring(self.is_behind(client)) => {
                let reach = scene.view.reach;
                let gate = reach.first_with_channel(reach.all, self.call.key.as_slice());
                self.try_at(gate, scene)
            }
            (S::Asking(question), I::Answer(answer)) => self.answered(question, answer, scene),
            (S::Asking(Q::Look), I::Unwritten) => self.rest(scene),
            (S::Asking(Q::Holder | Q::Announcement), I::Unwritten)
            | (S::Asking(Q::Holder | Q::Look | Q::Announcement | Q::Poll), I::Due)
            | (S::Asking(_), I::Unanswered) => self.asked_in_vain(scene),
            (S::Asking(Q::Place { .. } | Q::Poll), I::Unwritten)
            | (S::Asking(Q::Place { .. }), I::Due) => self.try_at(None, scene),
            // No more of it has come: the engine gives up what did, before the attempt.
            (S::Receiving, I::Due) => self.try_at(None, scene),
            (S::Pausing, I::Due) => self.begin(self.node, scene),
            (S::Still(still), I::Due) => self.rested(still, scene),
            (S::Still(Still::Looking), I::Changed(node)) => self.changed(node, scene),
            (S::Still(Still::Looking), I::Untracked(node)) if self.tracked.contains(node) => {
                self.untracked(node, scene)
            }
            (
                S::Trying | S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still(_),
                I::Changed(node) | I::Untracked(node),
            ) => {
                self.tracked.remove(node);
                state
            }
            // Inputs that come too late, or never.
            (S::Trying | S::Receiving | S::Pausing | S::Asking(_) | S::Still(_), I::Retry)
            | (S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still(_), I::Behind(_))
            | (
                S::Trying | S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still(_),
                I::Follower(_),
            )
            | (
                S::Trying | S::Receiving | S::Pausing | S::Failed | S::Still(_),
                I::Answer(_) | I::Unwritten | I::Unanswered,
            )
            | (S::Trying | S::Failed, I::Due) => state,
        };
        self.state = Some(next);
    }

    /// The lock was handed over, at least in part, and these wait behind the call.
    fn transferred(&mut self, list: List, row: Option<u8>, scene: &mut Scene<'_, '_>) -> State {
        self.have_turn(list);
        if let Some(row) = row {
            (self.row, self.due) = (row, Instant::MAX);
            return State::Trying;
        }
        match self.state {
            Some(state @ (State::Trying | State::Receiving)) => state,
            Some(State::Pausing | State::Failed | State::Asking(_) | State::Still(_)) | None => {
                self.wait_until(scene.view.now + scene.node_timeout, scene);
                State::Receiving
            }
        }
    }

    /// An answer to the question.
    fn answered(&mut self, question: Question, answer: Answer, scene: &mut Scene<'_, '_>) -> State {
        use {Answer as A, Question as Q};
        let (known, same) = (self.holder.token, State::Asking(question));
        match (question, answer) {
            (Q::Holder | Q::Look, A::Gone) => self.try_at(self.node, scene),
            (Q::Holder | Q::Look, A::Holder(holder)) => {
                self.note_holder(holder);
                same
            }
            (Q::Holder | Q::Look, A::Remaining(left)) => {
                // A key lives strictly longer than its milliseconds.
                let ends = |left: u32| scene.view.now.plus_millis(left.saturating_add(1));
                self.holder.ends = left.map_or(Instant::MAX, ends);
                self.announce(known.filter(|_| known != self.holder.unheard), scene)
            }
            (Q::Announcement | Q::Poll, A::Gone) => self.found_gone(question, scene),
            // To tell each new holder would be a race that a lock wins which moves as fast as messages.
            (Q::Announcement, A::Holder(holder)) if holder.is_some() && self.holder.is_heard => {
                self.note_holder(holder);
                self.listen_on(scene)
            }
            (Q::Announcement, A::Holder(holder)) if holder.is_some() && holder == known => {
                self.asked_in_vain(scene)
            }
            (Q::Poll, A::Holder(holder)) if holder.is_some() && self.may_listen(holder, scene) => {
                self.note_holder(holder);
                self.listen_on(scene)
            }
            (Q::Announcement | Q::Poll, A::Holder(holder)) => {
                self.note_holder(holder);
                self.announce(holder, scene)
            }
            (Q::Announcement, A::Heard(is_heard)) => {
                self.note_heard(is_heard);
                same
            }
            (Q::Place { ahead }, A::Heard(is_heard)) => {
                self.note_heard(is_heard);
                if self.holder.is_heard {
                    let trip = scene.view.source.round_trip();
                    let first = FIRST_POLL.max(trip * FIRST_POLL_TRIPS);
                    let a_turn = POLL_A_TURN.max(trip * POLL_A_TURN_TRIPS);
                    let poll = first.saturating_add(a_turn.saturating_mul(ahead));
                    let poll = poll.min(self.poll_after(scene));
                    self.listen(poll, scene)
                } else {
                    self.try_at(None, scene)
                }
            }
            // These have no answers.
            (Q::Holder | Q::Look | Q::Poll, A::Heard(_))
            | (Q::Announcement | Q::Poll, A::Remaining(_))
            | (Q::Place { .. }, A::Gone | A::Holder(_) | A::Remaining(_)) => same,
        }
    }

    /// Whether a poll that finds this holder leaves the call as it is: it is on the list, which goes
    /// with the lock.
    fn may_listen(&self, holder: Option<RawToken>, scene: &Scene<'_, '_>) -> bool {
        let is_told = holder == self.told;
        if is_told && !self.has_offer {
            return true;
        }
        let trip = scene.view.source.round_trip();
        let renew = if is_told { RENEW_MAX } else { renew_after(trip) };
        self.holder.is_heard && scene.view.now < self.told_at + renew
    }

    /// When the safety poll comes, at the soonest.
    fn poll_after(&self, scene: &Scene<'_, '_>) -> Duration {
        let poll = POLL.max(scene.view.source.round_trip() * POLL_TRIPS);
        if self.has_offer { poll.min(RENEW_MAX) } else { poll }
    }

    /// Stays still until the safety poll is due, unless something comes before it.
    fn listen_on(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let poll = self.poll_after(scene);
        self.listen(poll, scene)
    }

    /// The timer of a still call is due.
    fn rested(&mut self, still: Still, scene: &mut Scene<'_, '_>) -> State {
        if self.holder.ends <= scene.view.now {
            return self.try_at(self.node, scene);
        }
        match still {
            Still::Listening => self.poll(scene),
            Still::Looking => self.look(scene),
        }
    }

    /// The node says that the key has changed. It says so once, and the next attempt asks this node
    /// first.
    fn changed(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) -> State {
        self.tracked.remove(node);
        self.node = Some(node);
        let now = scene.view.now;
        self.holder.ends = self.looked_at.map_or(now, |at| now.max(at + POLL_MIN));
        self.wait_until(self.holder.ends, scene);
        State::Still(Still::Looking)
    }

    /// The node was greeted again, and tracks nothing any more.
    fn untracked(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) -> State {
        self.tracked.remove(node);
        let delay = self.look_delay(scene.view);
        self.wait_until(self.due.min(scene.view.now + delay), scene);
        State::Still(Still::Looking)
    }

    fn denied(&mut self, nodes: NodeMask, scene: &mut Scene<'_, '_>) -> State {
        (self.denied, self.asked, self.tracked) = (nodes, NodeMask::EMPTY, NodeMask::EMPTY);
        self.looked_at = None;
        (self.holder.gone, self.holder.is_listed) = (0, false);
        (self.holder.unheard, self.holder.changes) = (None, 0);
        self.tries = self.tries.saturating_add(1);
        self.ask_next(scene)
    }

    /// The first node, in the key's order, that has denied the attempt and was not asked in vain. A
    /// holder that hears all waiters through one node hears them in their order.
    fn first_denier(&self, reach: Reach) -> Option<NodeId> {
        reach.first_with_channel(self.denied.without(self.asked), self.call.key.as_slice())
    }

    /// Asks the next denying node who holds the key. Without one, there is no holder to tell.
    fn ask_next(&mut self, scene: &mut Scene<'_, '_>) -> State {
        match self.first_denier(scene.view.reach) {
            Some(node) => self.ask(node, Question::Holder, scene),
            None => {
                self.holder.unheard = self.holder.token;
                self.rest(scene)
            }
        }
    }

    fn asked_in_vain(&mut self, scene: &mut Scene<'_, '_>) -> State {
        if let Some(node) = self.node {
            self.asked.insert(node);
        }
        self.ask_next(scene)
    }

    fn ask(&mut self, node: NodeId, question: Question, scene: &mut Scene<'_, '_>) -> State {
        let phase = self.next_question(node, scene);
        let is_look = question == Question::Look;
        scene.actions.push(Action::Ask { op: self.op, node, phase, is_look });
        State::Asking(question)
    }

    /// Begins a new question; answers to older ones mean nothing from now on.
    fn next_question(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) -> Phase {
        *scene.questions = scene.questions.wrapping_add(1);
        self.phase = Phase::of(*scene.questions);
        self.node = Some(node);
        self.wait_until(scene.view.now + scene.node_timeout, scene);
        self.phase
    }

    fn wait_until(&mut self, at: Instant, scene: &mut Scene<'_, '_>) {
        self.due = at;
        scene.actions.push(Action::Timer { op: self.op, at });
    }

    fn note_holder(&mut self, holder: Option<RawToken>) {
        let before = std::mem::replace(&mut self.holder.token, holder);
        self.holder.gone = 0;
        // Nodes that hold different leftover tokens look like a lock that keeps changing hands: the
        // call believes that only a few times.
        if holder != before && self.holder.changes < CHANGES_MAX {
            self.holder.changes += 1;
            self.asked = NodeMask::EMPTY;
        }
    }

    fn note_heard(&mut self, is_heard: bool) {
        if !is_heard {
            saw(Sight::Unheard);
        }
        self.holder.is_heard = rules::will_be_woken(is_heard);
        if self.holder.is_heard {
            self.holder.is_listed = true;
            self.carried.hand_on();
        }
    }

    /// Tells the holder, if possible, that the call waits, and looks at the key again.
    fn announce(&mut self, holder: Option<RawToken>, scene: &mut Scene<'_, '_>) -> State {
        let Some(token) = holder else { return self.rest(scene) };
        let Some(node) = self.first_denier(scene.view.reach) else {
            return self.asked_in_vain(scene);
        };
        self.holder.is_heard = false;
        self.tell(node, (&token, 0), true, scene);
        State::Asking(Question::Announcement)
    }

    /// Waits behind a call that has its turn first.
    fn queue(&mut self, last: Successor, scene: &mut Scene<'_, '_>) -> State {
        let token = token_of(last.last());
        // That call also hears if this one gives up.
        self.holder.token = Some(token);
        // As if it had come to the first, and been passed on.
        let hops = u8::from(!last.behind.is_empty());
        self.tell(last.node, (&token, hops), false, scene);
        let ahead = u32::try_from(last.behind.len()).unwrap_or(u32::MAX);
        State::Asking(Question::Place { ahead })
    }

    /// Publishes that the call waits, and which calls wait behind it.
    fn tell(
        &mut self,
        node: NodeId,
        (to, hops): (&RawToken, u8),
        with_look: bool,
        scene: &mut Scene<'_, '_>,
    ) {
        let phase = self.next_question(node, scene);
        let now = scene.view.now;
        let offer = scene.view.source.offer(self.op);
        (self.told, self.told_at, self.has_offer) = (Some(*to), now, offer.is_some());
        let wait_ms = wait_ms(now, self.call.deadline);
        let waited_us = waited_us(self.since, now);
        let sender = Listed { id: self.id, wait_ms, waited_us, age_ms: 0, offer };
        let (list, key) = (self.carried.name_all(now), self.call.key.as_slice());
        let text = scene.actions.write((Kind::Announce, hops), sender, to, list, key);
        scene.actions.push(Action::Announce { op: self.op, node, phase, text, with_look });
    }

    /// Stays still until it is woken, the key's TTL ends or the safety poll is due.
    fn listen(&mut self, poll: Duration, scene: &mut Scene<'_, '_>) -> State {
        let now = scene.view.now;
        let poll = rules::safety_poll(now + poll.mul_f64(1.0 + scene.view.source.share()));
        (self.tries, self.holder.changes) = (0, 0);
        self.due = poll.min(self.holder.ends.max(now));
        scene.actions.push(Action::Listen { op: self.op, at: self.due });
        State::Still(Still::Listening)
    }

    /// Asks the holder's node who holds the key now.
    fn poll(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let reach = scene.view.reach;
        let last = self.node.filter(|&node| reach.channel.contains(node));
        let first = || reach.first_with_channel(reach.all, self.call.key.as_slice());
        let Some(node) = last.or_else(first) else { return self.try_at(None, scene) };
        let phase = self.next_question(node, scene);
        scene.actions.push(Action::Poll { op: self.op, node, phase });
        State::Asking(Question::Poll)
    }

    /// The node does not have the key. If the call is listed with a holder, the lock may just be
    /// changing hands: only if some more looks find the key gone too, no call was woken.
    fn found_gone(&mut self, question: Question, scene: &mut Scene<'_, '_>) -> State {
        let is_poll = question == Question::Poll;
        let is_listed = self.holder.is_listed && (is_poll || self.holder.is_heard);
        if is_listed && self.holder.gone < LOOKS {
            self.holder.gone += 1;
            let trip = scene.view.source.round_trip();
            return self.listen(NEXT_LOOK.max(trip * 2), scene);
        }
        if is_poll {
            saw(Sight::PollFoundGone);
        }
        // Many calls may have seen the same: tries that node first, and the others only when it
        // grants.
        self.try_at(self.node, scene)
    }

    /// There is no holder to tell. The call looks at the key once, so that its node tracks it from
    /// then on; then when the key ends, and after a while.
    fn rest(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let delay = self.look_delay(scene.view);
        self.holder.is_heard = false;
        if self.looked_at.is_none() {
            return self.look(scene);
        }
        let now = scene.view.now;
        let ends = self.holder.ends.max(now + REST_MIN);
        self.wait_until(ends.min(now + delay), scene);
        State::Still(Still::Looking)
    }

    /// When the next look comes: after the call's delay, until every denying node tracks the next
    /// change. From then on looks are for missed changes. No node tells a client of its own
    /// changes.
    fn look_delay(&self, view: &mut View<'_>) -> Duration {
        let share = view.source.share();
        let (call, reach) = (&self.call, view.reach);
        let delay = call.delay.saturating_add(call.jitter.mul_f64(share)).max(POLL_MIN);
        let told_by = self.tracked.intersection(reach.tracks);
        let silent = self.denied.intersection(reach.asked).without(told_by);
        if self.is_behind(ClientId::of(&self.id)) || self.tracked.is_empty() || !silent.is_empty() {
            return delay;
        }
        delay.max(TRACKED_POLL.mul_f64(1.0 + share))
    }

    /// Asks the denying nodes in turn: the key on one of them may be a leftover, and end much later
    /// than the lock.
    fn look(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let reach = scene.view.reach;
        let able = self.denied.intersection(reach.asked);
        let in_order = || reach.in_key_order(self.call.key.as_slice());
        let last = self.node.filter(|_| self.looked_at.is_some());
        let passed = last.map_or(0, |last| in_order().take_while(|&node| node != last).count() + 1);
        let mut order = in_order().skip(passed).chain(in_order());
        let next = order.find(|&node| able.contains(node));
        let before = self.looked_at.replace(scene.view.now);
        match next {
            Some(node) => self.ask(node, Question::Look, scene),
            // None of the nodes can answer any more: an attempt will show.
            None if before.is_some() => self.try_at(None, scene),
            None => self.rest(scene),
        }
    }

    /// The next attempt, at once or, where several failed in a row, after a short pause.
    fn try_at(&mut self, gate: Option<NodeId>, scene: &mut Scene<'_, '_>) -> State {
        let share = scene.view.source.share();
        self.node = gate;
        if self.tries >= TRIES_IN_ROW {
            let far = scene.view.source.round_trip() / PAUSE_PARTS;
            if far > PAUSE {
                // Beside a holder that takes the lock again and again, who asks one node before the
                // others comes too late each time.
                self.node = None;
            }
            let pause = PAUSE.max(far).mul_f64(1.0 + 4.0 * share);
            self.wait_until(scene.view.now + pause, scene);
            return State::Pausing;
        }
        self.begin(gate, scene)
    }

    fn begin(&mut self, gate: Option<NodeId>, scene: &mut Scene<'_, '_>) -> State {
        self.due = Instant::MAX;
        self.row = 0;
        scene.actions.push(Action::Try { op: self.op, gate });
        State::Trying
    }

    fn have_turn(&mut self, list: List) {
        self.carried.add_all(list);
        self.holder.is_heard = false;
    }

    /// Whether the holder is a call of `client`.
    fn is_behind(&self, client: ClientId) -> bool {
        self.holder.token.is_some_and(|token| ClientId::of(&token) == client)
    }
}
