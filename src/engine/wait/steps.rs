//! The course of one call that waits for its lock, input by input.
//!
//! # The table
//!
//! *Asks the next* means: the call asks the first node that denied the attempt and was not asked in
//! vain. A script there names the holder and the key's TTL, and tells the holder of the call. The
//! call is then *introduced*. Where no such node is left the call is *unheard*: it is still, and
//! polls one node after the other.
//!
//! An attempt *at one node* asks the others when that node has granted. From the fourth attempt in
//! a row on, the call pauses before each attempt.
//!
//! | state | input | next state | what is done |
//! |---|---|---|---|
//! | trying | begun | trying | the call is introduced while its first attempt is under way |
//! | any | denied | asking: introduction | asks the next |
//! | | denied, and the lock seems to be given away | asking: poll | no client is told again before a node has named the holder |
//! | trying, introduced | denied | asking: introduction | awaits the answer |
//! | | denied, and the holder was told | still | as after the answer |
//! | any | failed | failed | nothing: the call's plan says when the next attempt is |
//! | failed | retry | trying | an attempt |
//! | trying | behind | asking: place | announces itself to the last call of the queue |
//! | trying | turn | trying | the list that comes with it is kept |
//! | any other | turn | trying | the same, and an attempt |
//! | any other than trying | transferred in part | receiving | the list that comes with it is kept; the engine has the votes |
//! | any | transferred | trying | the same: the lock is won |
//! | receiving | due | trying | an attempt, because no more votes came |
//! | asking: place, poll; still | a follower for which it waits | trying | an attempt at one node: each waits for the other |
//! | asking: introduction | introduced | still; asking: poll | polls at once, unless the call was listed or all nodes denied it |
//! | trying, or asking: introduction | introduced or denied, and the holder's client has a call that waits behind this call | trying | an attempt at one node |
//! | asking: introduction | introduced in vain, refused | asking: introduction | asks the next |
//! | | a holder of another kind | still, unheard | |
//! | asking: poll | the holder that was told, or any holder if the call announced itself a moment ago | still | the list goes with the lock |
//! | | another holder | asking: introduction | asks the next |
//! | | a holder of another kind, or a holder that gave the turn twice in vain | still, unheard | |
//! | asking: introduction, poll | gone, while listed with a holder | still | looks again soon, up to `LOOKS` times, because the lock may be changing hands |
//! | | gone, otherwise or once more | trying | an attempt at that node |
//! | | unwritten, unanswered, or due | asking: introduction | asks the next |
//! | asking: place | heard | still | |
//! | | not heard, unwritten, unanswered, or due | trying | an attempt |
//! | pausing | due | trying | the postponed attempt |
//! | still | due, and the key's TTL has ended | trying | an attempt at the node that was asked last |
//! | | due, and the holder was told of an offer a while ago | asking: introduction | asks the next |
//! | | due otherwise | asking: poll | asks for the holder's token: at the node asked last, or at the next node |
//! | | due, and no node can be asked | trying | an attempt |

use super::message::{RawToken, Waitlist};
use super::outside::{Action, HolderAnswer, Input, Reach};
use super::waiter::{
    Early, FIRST_POLL, FIRST_POLL_TRIPS, LOOKS, NEXT_LOOK, POLL_A_TURN, POLL_A_TURN_TRIPS,
    Question, RENEW_MAX, Scene, WaitState, Waiter, renew_after,
};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::time::Instant;
use crate::witness::{Sight, saw};

impl Waiter {
    /// Takes an input: see the [table](self).
    pub(super) fn step(&mut self, input: Input, scene: &mut Scene<'_, '_>) {
        use {Input as I, Question as Q, WaitState as S};
        let Some(state) = self.state else { return };
        let next = match (state, input) {
            (_, I::Denied(nodes)) => self.denied(nodes, scene),
            (_, I::Failed) => S::Failed,
            (_, I::Transferred { list, row }) => self.transferred(state, list, row, scene),
            (S::Failed, I::Retry) => self.begin(None, scene),
            (S::Trying, I::Begun) => self.begun(scene),
            (S::Trying, I::Behind(last)) => self.queue(last, scene),
            (S::Trying, I::Turn(list)) => {
                self.have_turn(list);
                state
            }
            (S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still, I::Turn(list)) => {
                self.have_turn(list);
                self.note_turn();
                self.try_at(None, scene)
            }
            (S::Asking(Q::Place { .. } | Q::Poll) | S::Still, I::Follower(client))
                if rules::is_ring(self.is_behind(client)) =>
            {
                self.break_ring(scene)
            }
            (S::Trying | S::Asking(Q::Introduction), I::Follower(client)) => {
                self.follower = Some(client);
                state
            }
            (S::Trying | S::Failed, answer @ (I::Answer(_) | I::Unanswered | I::Unwritten)) => {
                self.answered_early(&answer, scene);
                state
            }
            (S::Asking(question), I::Answer(answer)) => self.answered(question, answer, scene),
            (S::Asking(Q::Introduction | Q::Poll), I::Unwritten | I::Unanswered | I::Due) => {
                self.asked_in_vain(scene)
            }
            // In `Receiving`, no more nodes handed the lock over: the engine gives up the votes
            // that came, then tries.
            (S::Asking(Q::Place { .. }), I::Unwritten | I::Unanswered | I::Due)
            | (S::Receiving, I::Due) => self.try_at(None, scene),
            (S::Pausing, I::Due) => self.begin(self.node, scene),
            (S::Still, I::Due) => self.rested(scene),
            // Inputs that come too late, or never.
            (S::Trying | S::Receiving | S::Pausing | S::Asking(_) | S::Still, I::Retry)
            | (
                S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still,
                I::Behind(_) | I::Begun | I::Follower(_),
            )
            | (S::Receiving | S::Pausing | S::Still, I::Answer(_) | I::Unwritten | I::Unanswered)
            | (S::Trying | S::Failed, I::Due) => state,
        };
        self.state = Some(next);
    }

    /// The lock was handed over, at least in part, and the listed calls wait behind the call.
    fn transferred(
        &mut self,
        state: WaitState,
        list: Waitlist,
        row: Option<u8>,
        scene: &mut Scene<'_, '_>,
    ) -> WaitState {
        self.have_turn(list);
        if let Some(row) = row {
            (self.row, self.due) = (row, Instant::MAX);
            return WaitState::Trying;
        }
        match state {
            WaitState::Trying | WaitState::Receiving => state,
            WaitState::Pausing | WaitState::Failed | WaitState::Asking(_) | WaitState::Still => {
                self.wait_until(scene.view.now + scene.node_timeout, scene);
                WaitState::Receiving
            }
        }
    }

    /// An answer to the question.
    fn answered(
        &mut self,
        question: Question,
        answer: HolderAnswer,
        scene: &mut Scene<'_, '_>,
    ) -> WaitState {
        use {HolderAnswer as A, Question as Q};
        match (question, answer) {
            (Q::Introduction | Q::Poll, A::Gone) => self.found_gone(scene),
            (Q::Introduction, A::Introduced { holder, remaining, is_heard }) => {
                let was_listed = self.holder.is_listed;
                self.introduced((holder, remaining, is_heard), scene);
                match holder {
                    // The call does not chase the holder: a lock that moves fast outruns the
                    // messages.
                    Some(_) if is_heard && was_listed => {
                        self.is_doubtful = false;
                        self.listen_on(scene)
                    }
                    Some(_) if is_heard => self.listen_behind(scene),
                    Some(_) => self.asked_in_vain(scene),
                    None => self.rest(scene),
                }
            }
            (Q::Introduction, A::Refused) => self.asked_in_vain(scene),
            (Q::Poll, A::Holder(holder)) => {
                self.note_holder(holder);
                if holder.is_none() || self.is_given_away(holder) {
                    self.rest(scene)
                } else if self.may_listen(holder, scene) {
                    self.listen_on(scene)
                } else {
                    self.ask_next(scene)
                }
            }
            (Q::Place { ahead }, A::Heard(is_heard)) => {
                self.note_heard(is_heard);
                if self.holder.is_heard {
                    let trip = scene.view.round_trip;
                    let first = FIRST_POLL.max(trip * FIRST_POLL_TRIPS);
                    let a_turn = POLL_A_TURN.max(trip * POLL_A_TURN_TRIPS);
                    let poll = first.saturating_add(a_turn.saturating_mul(ahead));
                    let poll = poll.min(self.poll_after(scene));
                    self.listen(poll, scene)
                } else {
                    self.try_at(None, scene)
                }
            }
            // No question has such an answer.
            (Q::Introduction, A::Heard(_) | A::Holder(_))
            | (Q::Poll, A::Heard(_) | A::Introduced { .. } | A::Refused)
            | (Q::Place { .. }, A::Gone | A::Holder(_) | A::Introduced { .. } | A::Refused) => {
                WaitState::Asking(question)
            }
        }
    }

    /// Whether the call stays still after a poll finds this holder: the list with the call goes
    /// with the lock.
    fn may_listen(&self, holder: Option<RawToken>, scene: &Scene<'_, '_>) -> bool {
        let is_fresh = || scene.view.now < self.told_at + renew_after(scene.view.round_trip);
        self.holder.is_heard && (holder == self.told || (!self.is_doubtful && is_fresh()))
    }

    /// The timer of a still call is due.
    fn rested(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        if self.holder.ends <= scene.view.now {
            return self.try_at(self.node, scene);
        }
        let reach = scene.view.reach;
        if self.holder.is_heard && self.has_offer && self.told_at + RENEW_MAX <= scene.view.now {
            return self.ask_next(scene);
        }
        let node = if self.holder.is_heard {
            let last = self.node.filter(|&node| reach.channel.contains(node));
            last.or_else(|| reach.first_with_channel(reach.all, self.call.key.as_slice()))
        } else {
            self.next_denier(reach)
        };
        match node {
            Some(node) => self.poll(node, scene),
            None => self.try_at(None, scene),
        }
    }

    /// The denying node behind the node that was asked last. A denying node may hold a leftover key
    /// that ends much later than the lock.
    fn next_denier(&self, reach: Reach) -> Option<NodeId> {
        let able = self.denied.intersection(reach.askable);
        let in_order = || reach.in_key_order(self.call.key.as_slice());
        let behind = in_order().skip_while(|&node| Some(node) != self.node).skip(1);
        behind.chain(in_order()).find(|&node| able.contains(node))
    }

    fn denied(&mut self, nodes: NodeMask, scene: &mut Scene<'_, '_>) -> WaitState {
        (self.denied, self.asked) = (nodes, NodeMask::EMPTY);
        let early = std::mem::take(&mut self.early);
        let holder = &mut self.holder;
        (holder.gone, holder.is_listed, holder.changes) = (0, false, 0);
        if early == Early::None {
            (holder.is_heard, holder.ends) = (false, Instant::MAX);
        }
        self.is_doubtful = false;
        self.tries = self.tries.saturating_add(1);
        match early {
            // The call may not know the holder's token: it announced itself to another call, or its
            // turns came before any answer. So the call asks a node.
            Early::None if self.is_given_away(self.holder.token) => {
                match self.next_denier(scene.view.reach) {
                    Some(node) => self.poll(node, scene),
                    None => self.rest(scene),
                }
            }
            Early::None => self.ask_next(scene),
            Early::Asked => {
                self.wait_until(scene.view.now + scene.node_timeout, scene);
                WaitState::Asking(Question::Introduction)
            }
            Early::Heard => {
                self.holder.is_listed = true;
                self.listen_behind(scene)
            }
        }
    }

    /// The first attempt is under way, and the call introduces itself to the holder.
    fn begun(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        let reach = scene.view.reach;
        if let Some(node) = reach.first_of(reach.scripts, self.call.key.as_slice()) {
            self.introduce(node, scene);
            self.early = Early::Asked;
        }
        WaitState::Trying
    }

    /// The answer to an introduction, while its attempt is under way.
    fn answered_early(&mut self, input: &Input, scene: &mut Scene<'_, '_>) {
        if self.early != Early::Asked {
            return;
        }
        self.early = Early::None;
        if let &Input::Answer(HolderAnswer::Introduced { holder, remaining, is_heard }) = input {
            self.introduced((holder, remaining, is_heard), scene);
            if self.holder.is_heard {
                saw(Sight::Introduced);
                self.early = Early::Heard;
            }
        } else if matches!(input, Input::Answer(HolderAnswer::Gone)) {
            scene.actions.push(Action::Withdraw { op: self.op });
        }
    }

    /// The holder was told of the call. If a call of the holder's waits for this call too, one of
    /// the two has to try.
    fn listen_behind(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        let follower = self.follower.take();
        if follower.is_some_and(|client| rules::is_ring(self.is_behind(client))) {
            return self.break_ring(scene);
        }
        if self.is_given_away(self.holder.token) {
            return self.rest(scene);
        }
        // Unless every node denied the call, the client that was told may hold no lock: its attempt
        // may have failed, too. Then each call waits for another.
        let reach = scene.view.reach;
        self.is_doubtful = !reach.askable.without(self.denied).is_empty();
        match self.node.filter(|&node| self.is_doubtful && reach.askable.contains(node)) {
            Some(node) => self.poll(node, scene),
            None => self.listen_on(scene),
        }
    }

    /// Introduces the call at the first node, in the key's order, that has denied the attempt and
    /// was not asked in vain. A holder that hears all waiters through one node hears them in their
    /// order.
    fn ask_next(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        let reach = scene.view.reach;
        let able = self.denied.without(self.asked).intersection(reach.scripts);
        match reach.first_of(able, self.call.key.as_slice()) {
            Some(node) => {
                self.introduce(node, scene);
                WaitState::Asking(Question::Introduction)
            }
            None => self.rest(scene),
        }
    }

    fn asked_in_vain(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        if let Some(node) = self.node {
            self.asked.insert(node);
        }
        self.ask_next(scene)
    }

    /// The node does not have the key. If the call is listed with a holder, the lock may just be
    /// changing hands. If a few more looks also find the key gone, no woken call is about to take
    /// the lock.
    fn found_gone(&mut self, scene: &mut Scene<'_, '_>) -> WaitState {
        if self.holder.is_listed && self.holder.gone < LOOKS {
            self.holder.gone += 1;
            let trip = scene.view.round_trip;
            return self.listen(NEXT_LOOK.max(trip * 2), scene);
        }
        saw(Sight::PollFoundGone);
        // Many calls may have seen the same. So the call tries that node first, and the other nodes
        // only when it grants.
        self.try_at(self.node, scene)
    }

    fn have_turn(&mut self, list: Waitlist) {
        self.carried.add_all(list);
        self.holder.is_heard = false;
        self.early = Early::None;
    }
}
