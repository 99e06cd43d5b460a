//! The course of one call that waits for its lock, input by input.
//!
//! # The table
//!
//! *Asks the next* means: the call asks the first node that denied the attempt, and was not asked
//! in vain, who holds the key and for how long; if the call takes locks over, and the node runs
//! scripts, the node tells the holder of the call at once: it is *introduced*. Without such a node there is
//! no holder to tell, and the call *looks*: at one node after the other, each of which then tracks the
//! key's next change.
//! An attempt *at one node* asks the others when that node has granted; the third in a row, or a
//! later one, comes after a pause.
//!
//! | state | input | next state | what is done |
//! |---|---|---|---|
//! | trying | begun | trying | the call is introduced while its first attempt is under way |
//! | any | denied | asking: introduction, holder | asks the next |
//! | trying, introduced | denied | asking: introduction | awaits the answer |
//! | | denied, and the holder was told | still: listening | as after the answer |
//! | any | failed | failed | nothing: the call's plan says when the next attempt is |
//! | failed | retry | trying | an attempt |
//! | trying | behind | asking: place | announces itself to the call that has its turn first |
//! | trying | turn | trying | the list that comes with it is kept |
//! | any other | turn | trying | the same, and an attempt |
//! | any other than trying | transferred in part | receiving | the list that comes with it is kept; the engine has the votes |
//! | any | transferred | trying | the same: the lock is won |
//! | receiving | due | trying | an attempt: no more of it came |
//! | asking after it told, still | a follower for which it waits | trying | an attempt at one node: each waits for the other |
//! | asking: introduction | introduced | still: listening | asks once more who holds the key (asking: announcement) unless every node denied the call |
//! | | introduced in vain | asking: introduction | asks the next |
//! | | a holder of another kind | asking: look | looks |
//! | | refused | asking: holder | asks the same node without a script |
//! | | gone | trying | an attempt at that node |
//! | asking: holder, look | a holder | the same | the answer for how long comes next |
//! | | remaining | asking: announcement | tells the holder and asks who holds the key now; looks if the holder was told in vain, or is unknown |
//! | | gone | trying | an attempt at that node |
//! | asking: announcement | heard | the same | who received it has the calls that it named, and passes them on where it has let go |
//! | | a holder, behind that | still: listening | |
//! | asking: announcement, poll | another holder than was told, and not every node had denied the call that was introduced | asking: announcement | tells that holder |
//! | asking: announcement | the same holder otherwise | asking: holder | asks the next |
//! | asking: poll | the holder that was told, or any while the call was told a moment ago | still: listening | the list goes with the lock |
//! | | the holder that was told of an offer a while ago | asking: announcement | tells the holder again |
//! | asking: holder, poll | a holder that was told, and gave the turn twice in vain | still: listening | its lock was given away: nobody is told again |
//! | asking: announcement, poll | another holder otherwise | asking: announcement | tells that holder; looks if it is unknown |
//! | | gone, while listed with a holder | still: listening | looks again soon, some times: the lock may be changing hands |
//! | | gone, otherwise or once more | trying | an attempt at that node |
//! | asking: place | heard | still: listening | |
//! | | not heard, or due | trying | an attempt |
//! | asking: introduction, holder, announcement | unwritten | asking: holder | asks the next |
//! | asking: look | unwritten | still: looking | the next look comes later |
//! | asking: place, poll | unwritten | trying | an attempt |
//! | asking otherwise | unanswered, or due | asking: holder | asks the next |
//! | pausing | due | trying | the postponed attempt |
//! | still | due, and the key's TTL has ended | trying | an attempt at the node that was asked last |
//! | still: listening | due | asking: poll | asks who holds the key |
//! | still: looking | due | asking: look | looks at the next node |
//! | | changed | the same | an attempt at that node soon |
//! | | untracked | the same | the next look comes when the plan says |

use super::list::List;
use super::message::RawToken;
use super::outside::{Action, Answer, Input, Reach};
use super::state::{
    Early, FIRST_POLL, FIRST_POLL_TRIPS, LOOKS, NEXT_LOOK, POLL_A_TURN, POLL_A_TURN_TRIPS,
    Question, RENEW_MAX, Scene, State, Still, renew_after,
};
use super::waiter::Waiter;
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::time::Instant;
use crate::witness::{Sight, saw};

impl Waiter {
    /// Takes an input: see the [table](self).
    pub(super) fn step(&mut self, input: Input, scene: &mut Scene<'_, '_>) {
        use {Input as I, Question as Q, State as S};
        let Some(state) = self.state else { return };
        let next = match (state, input) {
            (_, I::Denied(nodes)) => self.denied(nodes, scene),
            (_, I::Failed) => S::Failed,
            (_, I::Transferred { list, row }) => self.transferred(list, row, scene),
            (S::Failed, I::Retry) => self.begin(None, scene),
            (S::Trying, I::Begun) => self.begun(scene),
            (S::Trying, I::Behind(last)) => self.queue(last, scene),
            (S::Trying, I::Turn(list)) => {
                self.have_turn(list);
                state
            }
            (S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still(_), I::Turn(list)) => {
                self.have_turn(list);
                self.note_turn();
                self.try_at(None, scene)
            }
            (
                S::Asking(Q::Announcement | Q::Place { .. } | Q::Poll) | S::Still(_),
                I::Follower(client),
            ) if rules::is_ring(self.is_behind(client)) => self.break_ring(scene),
            (S::Trying | S::Asking(Q::Introduction), I::Follower(client)) => {
                self.follower = Some(client);
                state
            }
            (S::Trying | S::Failed, answer @ (I::Answer(_) | I::Unanswered | I::Unwritten)) => {
                self.answered_early(&answer, scene);
                state
            }
            (S::Asking(question), I::Answer(answer)) => self.answered(question, answer, scene),
            (S::Asking(Q::Look), I::Unwritten) => self.rest(scene),
            (S::Asking(Q::Introduction | Q::Holder | Q::Announcement), I::Unwritten)
            | (
                S::Asking(Q::Introduction | Q::Holder | Q::Look | Q::Announcement | Q::Poll),
                I::Due,
            )
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
            | (
                S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still(_),
                I::Behind(_) | I::Begun,
            )
            | (
                S::Receiving | S::Pausing | S::Failed | S::Asking(_) | S::Still(_),
                I::Follower(_),
            )
            | (
                S::Receiving | S::Pausing | S::Still(_),
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
                self.note_remaining(left, scene);
                self.announce(known.filter(|_| known != self.holder.unheard), scene)
            }
            (Q::Introduction, A::Gone) => self.try_at(self.node, scene),
            (Q::Introduction, A::Introduced { holder, remaining, is_heard }) => {
                self.introduced((holder, remaining, is_heard), scene);
                match holder {
                    Some(_) if is_heard => self.listen_behind(scene),
                    Some(_) => self.asked_in_vain(scene),
                    None => self.rest(scene),
                }
            }
            // It may be asked without a script.
            (Q::Introduction, A::Refused) => match self.node {
                Some(node) => self.ask(node, Q::Holder, scene),
                None => self.ask_next(scene),
            },
            (Q::Announcement | Q::Poll, A::Gone) => self.found_gone(question, scene),
            // To tell each new holder would be a race that a lock wins which moves as fast as messages.
            (Q::Announcement, A::Holder(holder)) if holder.is_some() && self.has_told(holder) => {
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
            (Q::Introduction | Q::Holder | Q::Look | Q::Poll, A::Heard(_))
            | (Q::Introduction | Q::Announcement | Q::Poll, A::Remaining(_))
            | (Q::Introduction, A::Holder(_))
            | (
                Q::Holder | Q::Look | Q::Announcement | Q::Poll | Q::Place { .. },
                A::Introduced { .. } | A::Refused,
            )
            | (Q::Place { .. }, A::Gone | A::Holder(_) | A::Remaining(_)) => same,
        }
    }

    /// Whether the list that the call is on is with this holder, or on the way to it.
    fn has_told(&self, holder: Option<RawToken>) -> bool {
        self.holder.is_heard && (holder == self.told || !self.is_doubtful)
    }

    /// Whether a poll that finds this holder leaves the call as it is: it is on the list, which goes
    /// with the lock.
    fn may_listen(&self, holder: Option<RawToken>, scene: &Scene<'_, '_>) -> bool {
        let is_told = holder == self.told;
        if is_told && (!self.has_offer || self.is_given_away(holder)) {
            return true;
        }
        let trip = scene.view.source.round_trip();
        let renew = if is_told { RENEW_MAX } else { renew_after(trip) };
        self.has_told(holder) && scene.view.now < self.told_at + renew
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

    fn denied(&mut self, nodes: NodeMask, scene: &mut Scene<'_, '_>) -> State {
        (self.denied, self.asked, self.tracked) = (nodes, NodeMask::EMPTY, NodeMask::EMPTY);
        self.looked_at = None;
        (self.holder.gone, self.holder.is_listed) = (0, false);
        (self.holder.unheard, self.holder.changes) = (None, 0);
        self.is_doubtful = false;
        self.tries = self.tries.saturating_add(1);
        match std::mem::take(&mut self.early) {
            Early::None => self.ask_next(scene),
            Early::Asked => {
                self.wait_until(scene.view.now + scene.node_timeout, scene);
                State::Asking(Question::Introduction)
            }
            Early::Heard => {
                self.holder.is_listed = true;
                self.listen_behind(scene)
            }
        }
    }

    /// The first attempt is under way, and the call introduces itself to who has the lock.
    fn begun(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let reach = scene.view.reach;
        if let Some(node) = reach.first_of(reach.scripts, self.call.key.as_slice())
            && self.introduce(node, scene)
        {
            self.early = Early::Asked;
        }
        State::Trying
    }

    /// The answer to an introduction, while its attempt is under way.
    fn answered_early(&mut self, input: &Input, scene: &mut Scene<'_, '_>) {
        if self.early != Early::Asked {
            return;
        }
        self.early = Early::None;
        if let &Input::Answer(Answer::Introduced { holder, remaining, is_heard }) = input {
            self.introduced((holder, remaining, is_heard), scene);
            if self.holder.is_heard {
                saw(Sight::Introduced);
                self.early = Early::Heard;
            }
        } else if matches!(input, Input::Answer(Answer::Gone)) {
            scene.actions.push(Action::Withdraw { op: self.op });
        }
    }

    /// The holder was told of the call. If a call of the holder's waits for this one too, one of the
    /// two has to try.
    fn listen_behind(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let follower = self.follower.take();
        if follower.is_some_and(|client| rules::is_ring(self.is_behind(client))) {
            return self.break_ring(scene);
        }
        // Unless every node denied the call, who seemed to hold the lock may have failed as the call did,
        // and each wait for the next.
        let reach = scene.view.reach;
        self.is_doubtful = !reach.asked.without(self.denied).is_empty();
        match self.node.filter(|&node| self.is_doubtful && reach.channel.contains(node)) {
            Some(node) => self.ask_holder(node, Question::Announcement, scene),
            None => self.listen_on(scene),
        }
    }

    /// The first node, in the key's order, that has denied the attempt and was not asked in vain. A
    /// holder that hears all waiters through one node hears them in their order.
    fn first_denier(&self, reach: Reach) -> Option<NodeId> {
        reach.first_with_channel(self.denied.without(self.asked), self.call.key.as_slice())
    }

    /// Asks the next denying node who holds the key. Without one, there is no holder to tell.
    fn ask_next(&mut self, scene: &mut Scene<'_, '_>) -> State {
        match self.first_denier(scene.view.reach) {
            Some(node)
                if scene.view.reach.scripts.contains(node)
                    && !self.is_given_away(self.holder.token)
                    && self.introduce(node, scene) =>
            {
                State::Asking(Question::Introduction)
            }
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

    /// Tells the holder, if possible, that the call waits, and looks at the key again.
    fn announce(&mut self, holder: Option<RawToken>, scene: &mut Scene<'_, '_>) -> State {
        let Some(token) = holder else { return self.rest(scene) };
        if self.is_given_away(holder) {
            return self.listen_on(scene);
        }
        let Some(node) = self.first_denier(scene.view.reach) else {
            return self.asked_in_vain(scene);
        };
        (self.holder.is_heard, self.is_doubtful) = (false, false);
        self.tell(node, (&token, 0), true, scene);
        State::Asking(Question::Announcement)
    }

    /// Asks the holder's node who holds the key now.
    fn poll(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let reach = scene.view.reach;
        let last = self.node.filter(|&node| reach.channel.contains(node));
        let first = || reach.first_with_channel(reach.all, self.call.key.as_slice());
        let Some(node) = last.or_else(first) else { return self.try_at(None, scene) };
        self.ask_holder(node, Question::Poll, scene)
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

    fn have_turn(&mut self, list: List) {
        self.carried.add_all(list);
        self.holder.is_heard = false;
        self.early = Early::None;
    }
}
