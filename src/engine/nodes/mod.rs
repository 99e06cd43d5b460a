//! All nodes, and masks of what each node can do and needs.
//!
//! # Invariants
//!
//! - Only the files of this folder write masks.
//! - Between two calls of the engine each mask agrees with the nodes themselves.

mod writing;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::command::{Form, ReleaseStep};
use crate::error::Cause;
use crate::node::{
    AdmissionRules, Connection, Debt, DebtDue, Node, NodeState, Now, Pending, Request, State, Step,
};
use crate::quorum::{Electorate, NODES_MAX, NodeId, NodeMask};
use crate::resp::{Quick, quick};
use crate::rules;
use crate::slab::SlotIndex;
use crate::time::Instant;

/// The nodes that accept a request at once and in the same form, so that the engine copies one
/// encoding to each without a check. Each is greeted, answers in time, and releases by `step`.
#[derive(Clone, Copy, Debug)]
struct Cohort {
    nodes: NodeMask,
    step: ReleaseStep,
}

impl Cohort {
    const EMPTY: Self = Self { nodes: NodeMask::EMPTY, step: ReleaseStep::Eval };
}

/// An answer that nearly every read holds, from a node in good standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Everyday {
    /// The node has done the SET.
    Granted(SlotIndex),
    /// Another client holds the key.
    Denied(SlotIndex),
    /// The node has deleted the key.
    Deleted(SlotIndex),
    /// There was no key to delete.
    NotThere(SlotIndex),
}

/// An answer of a node that has done what the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Positive {
    /// The node has done the SET.
    Granted(SlotIndex),
    /// The node has deleted the key.
    Deleted(SlotIndex),
}

/// See the [module](self).
#[derive(Clone)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    names: Arc<[Box<str>]>,
    rules: AdmissionRules,
    /// The nodes of the client's lists. Others do not vote: they will join a list, or have left it.
    listed: NodeMask,
    /// The number of votes alone does not decide, so the client reads no answer by the quick path.
    is_careful: bool,
    /// The state of each node that people last saw, and since when the node is in it.
    shown: Vec<(NodeState, Instant)>,
    /// The nodes to which a SET may go.
    voters: NodeMask,
    cohort: Cohort,
    with_output: NodeMask,
    /// Nodes whose output wakes a waiter.
    waking: NodeMask,
    with_wish: NodeMask,
    /// The nodes that need care in each pass. The others have nothing due before `stalls_at`, on
    /// the attended clock.
    restless: NodeMask,
    stalls_at: Instant,
    with_news: NodeMask,
}

impl Nodes {
    /// None of the nodes is connected.
    pub(super) fn new(
        nodes: Vec<Node>,
        names: Arc<[Box<str>]>,
        (rules, electorate): (AdmissionRules, &Electorate),
        now: Instant,
    ) -> Self {
        Self {
            listed: electorate.nodes(),
            is_careful: !electorate.takes_any(),
            names,
            rules,
            shown: vec![(NodeState::Disconnected, now); nodes.len()],
            voters: NodeMask::EMPTY,
            cohort: Cohort::EMPTY,
            with_output: NodeMask::EMPTY,
            waking: NodeMask::EMPTY,
            with_wish: NodeMask::EMPTY,
            restless: NodeMask::first(nodes.len()),
            stalls_at: now,
            with_news: NodeMask::EMPTY,
            nodes,
        }
    }

    /// Sets how much may wait for each node. Call it only before the engine is used.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn limit(&mut self, room: crate::node::Room) {
        for node in &mut self.nodes {
            node.limit(room);
        }
    }

    // ---- the views ----

    pub(super) const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes of the client's lists.
    pub(super) const fn all(&self) -> NodeMask {
        self.listed
    }

    /// The nodes, also those that are not in the lists yet, or not any more.
    pub(super) const fn every(&self) -> NodeMask {
        NodeMask::first(self.nodes.len())
    }

    /// The nodes of the client's lists of which this is true.
    pub(super) fn those(&self, is_so: impl Fn(&Node) -> bool) -> NodeMask {
        self.all().into_iter().filter(|&id| is_so(self.at(id))).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    #[expect(clippy::indexing_slicing, reason = "ids come from the masks of these nodes")]
    pub(super) fn at(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// For changes whose masks wait for the [refresh](Self::refresh) that follows. A change that
    /// must be in the masks at once is a function of these nodes, which writes both.
    #[expect(clippy::indexing_slicing, reason = "ids come from the masks of these nodes")]
    pub(super) fn at_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// The node with a caller's id, if there is one.
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    pub(super) const fn names(&self) -> &Arc<[Box<str>]> {
        &self.names
    }

    pub(super) fn name(&self, id: NodeId) -> &str {
        self.names.get(id.index()).map_or("", |name| name)
    }

    /// The nodes to which a SET may go.
    #[inline]
    pub(super) const fn voters(&self) -> NodeMask {
        self.voters
    }

    /// Since when the node is in the state that people see.
    pub(super) fn shown_since(&self, id: NodeId) -> Option<Instant> {
        self.shown.get(id.index()).map(|(_, since)| *since)
    }

    /// The compare-and-delete that the node accepts; `None` until the node is greeted.
    pub(super) fn release_step(&self, id: NodeId) -> Option<ReleaseStep> {
        self.form(id).filter(|_| self.at(id).is_greeted())
    }

    /// The form of a release or an extension for the node.
    pub(super) fn form<F: Form>(&self, id: NodeId) -> Option<F> {
        let mut dialect = self.at(id).dialect;
        *F::of(&mut dialect)
    }

    /// The round trip to the slowest of the `quorum` fastest nodes, as measured by the greetings.
    pub(super) fn round_trip(&self, quorum: u32) -> Duration {
        let trips = self.voters.into_iter().filter_map(|id| self.at(id).round_trip);
        let mut trips: SmallVec<[Duration; NODES_MAX]> = trips.collect();
        trips.sort_unstable();
        let nth = usize::try_from(quorum).unwrap_or(NODES_MAX).saturating_sub(1);
        trips.get(nth).copied().unwrap_or_default()
    }

    /// The nodes of `absent` that are on their way, if they complete a quorum that `present` lacks.
    pub(super) fn awaitable(
        &self,
        present: NodeMask,
        absent: NodeMask,
        electorate: &Electorate,
    ) -> NodeMask {
        if electorate.has_quorum(present) {
            return NodeMask::EMPTY;
        }
        let coming: NodeMask =
            absent.into_iter().filter(|&node| self.at(node).is_on_the_way()).collect();
        if electorate.has_quorum(present.union(coming)) { coming } else { NodeMask::EMPTY }
    }

    // ---- inputs for one node ----

    /// The connection has ended. Returns the pending requests in the order in which they were
    /// written.
    pub(super) fn handle_lost(
        &mut self,
        id: NodeId,
        cause: Cause,
        random: u32,
        now: Now,
    ) -> Vec<Pending> {
        let node = self.at_mut(id);
        let pending = node.handle_lost(cause, random, now.real);
        self.voters.remove(id);
        rules::stop_writing(&mut self.cohort.nodes, id);
        self.with_output.remove(id);
        pending.iter().copied().collect()
    }

    /// Reads one whole positive answer, which nearly every read is.
    #[inline]
    pub(super) fn read_positive(
        &mut self,
        id: NodeId,
        bytes: &[u8],
        now: Instant,
    ) -> Option<Positive> {
        if rules::is_read_with_care(self.restless.contains(id)) {
            return None;
        }
        let node = self.nodes.get_mut(id.index())?;
        let request = node.awaited()?.request;
        if let Request::Set(slot) = request
            && bytes == b"+OK\r\n"
        {
            node.answer_read(now);
            return Some(Positive::Granted(slot));
        }
        if let Request::Release { slot, .. } = request
            && bytes == b":1\r\n"
        {
            node.answer_read(now);
            return Some(Positive::Deleted(slot));
        }
        None
    }

    /// The next everyday answer at the beginning of `input`, and where the rest begins.
    pub(super) fn read_everyday(
        &mut self,
        id: NodeId,
        input: &[u8],
        now: Instant,
    ) -> Option<(Everyday, usize)> {
        if self.restless.contains(id) {
            return None;
        }
        let node = self.nodes.get_mut(id.index())?;
        let request = node.awaited()?.request;
        let (word, len) = quick(input)?;
        let answer = match (request, word) {
            (Request::Set(slot), Quick::Ok) => Everyday::Granted(slot),
            (Request::Set(slot), Quick::Null) => Everyday::Denied(slot),
            (Request::Release { slot, .. }, Quick::One) => Everyday::Deleted(slot),
            (Request::Release { slot, .. }, Quick::Zero) => Everyday::NotThere(slot),
            _ => return None,
        };
        node.answer_read(now);
        Some((answer, len))
    }

    /// Reads on, up to the next step to report. If the node's answer says that it is not a master
    /// in service, also returns why.
    pub(super) fn read(
        &mut self,
        id: NodeId,
        input: &mut &[u8],
        now: Now,
    ) -> (Result<Step, Cause>, Option<Cause>) {
        let node = self.at_mut(id);
        let step = node.next_step(input, now);
        (step, node.take_no_master())
    }

    /// All answers of a greeting have come. Returns whether that ends it.
    pub(super) fn conclude_greeting(&mut self, id: NodeId, now: Now) -> bool {
        let (before, rest) = self.nodes.split_at_mut(id.index());
        let Some((node, after)) = rest.split_first_mut() else { return false };
        let is_duplicate = |identity: &str| {
            let has_other = before.iter().chain(&*after).any(|other| {
                other.identity() == Some(identity) && (other.serves() || !other.is_settled)
            });
            rules::is_second_of_server(has_other)
        };
        let is_over = node.conclude_greeting(&self.rules, is_duplicate, now);
        node.heard(now.real);
        is_over
    }

    /// The other nodes whose addresses have led the client to this node's process.
    pub(super) fn elsewhere(&self, id: NodeId) -> NodeMask {
        let Some(identity) = self.at(id).facts().identity() else { return NodeMask::EMPTY };
        let others = self.every().without(NodeMask::of(id)).into_iter();
        others.filter(|&other| self.at(other).has_met(&identity)).collect()
    }

    /// Whether the client extends at another address of this node's server.
    pub(super) fn is_second_address(&self, id: NodeId) -> bool {
        let refused_for = |id| self.at(id).state().refused_for();
        let is_first = |other: NodeId| {
            // A node that is refused as a duplicate gets no extensions.
            let is_able = self.at(other).is_connected() && refused_for(other) != Cause::Duplicate;
            is_able && (refused_for(other) == Cause::None || other < id)
        };
        refused_for(id) == Cause::Duplicate
            || refused_for(id) != Cause::None && self.elsewhere(id).into_iter().any(is_first)
    }

    /// Whether the client hears each message of the node's server at an earlier address, too.
    pub(super) fn is_heard_before(&self, id: NodeId) -> bool {
        let Some(mark) = self.at(id).mark() else { return false };
        let hears = |other: &Node| other.listens() && !other.is_stalled();
        let mut before = self.every().into_iter().take_while(|other| *other < id);
        before.any(|other| self.at(other).mark() == Some(mark) && hears(self.at(other)))
    }

    /// The node answered TIME.
    pub(super) fn time_told(&mut self, id: NodeId, answer: crate::command::Answer, now: Now) {
        let node = self.at_mut(id);
        let asked_at = node.take_time_asked();
        if answer == crate::command::Answer::Number {
            node.told_time(node.number(), asked_at, now.real);
        }
    }

    /// An error tells something about the node itself.
    pub(super) fn note_refusal(&mut self, id: NodeId, cause: Cause, now: Instant) {
        let rules = self.rules;
        let node = self.at_mut(id);
        if !matches!(cause, Cause::WrongType | Cause::Unsupported) {
            node.note_trouble(cause, now);
        }
        let is_replica = rules::is_replica(matches!(cause, Cause::Replica | Cause::MasterDown));
        if is_replica || rules::may_lose_memory(cause == Cause::Loading) {
            node.distrust(&rules, now);
        } else if matches!(cause, Cause::Credentials | Cause::Cluster | Cause::Protected) {
            node.refuse(cause, now);
        }
    }

    /// The node does not accept this form of a release or an extension: the client does not send it
    /// again. Without another form of the release the node is not fit for locks. Returns the form
    /// that the client uses instead, if there is one.
    pub(super) fn leave<F: Form>(&mut self, id: NodeId, form: F, now: Instant) -> Option<F> {
        let node = self.at_mut(id);
        node.dialect.leave(form);
        if node.dialect.release.is_none() {
            node.refuse(Cause::NoDialect, now);
        }
        self.gather_cohort();
        self.form(id)
    }

    /// The client owes the node a release. Returns the slot of a debt that was dropped for it.
    pub(super) fn owe(&mut self, id: NodeId, debt: Debt, due: DebtDue) -> Option<SlotIndex> {
        self.restless.insert(id);
        self.at_mut(id).debts.push(debt, due)
    }

    // ---- care for the nodes ----

    /// Notes the state of a node that people see. Returns whether it has changed.
    pub(super) fn note_shown(&mut self, id: NodeId, now: Instant) -> bool {
        self.at_mut(id).is_changed = false;
        let shown = self.at(id).shown(Duration::ZERO);
        let Some(place) = self.shown.get_mut(id.index()).filter(|place| place.0 != shown) else {
            return false;
        };
        *place = (shown, now);
        true
    }

    /// After a change of a node: notes what the node can do and needs now. Returns whether
    /// operations may stop waiting for the node: it has just become able to vote, or is not on its
    /// way.
    pub(super) fn refresh(&mut self, id: NodeId) -> bool {
        let node = self.at(id);
        let can_vote = self.listed.contains(id) && node.can_vote();
        let has_output = node.has_output();
        let (is_on_the_way, is_restless) = (node.is_on_the_way(), node.is_restless());
        if node.wish.is_some() {
            self.with_wish.insert(id);
        }
        if self.at(id).trouble.has_news() {
            self.with_news.insert(id);
        }
        if has_output {
            self.with_output.insert(id);
        }
        // The quick path counts votes and ignores the lists.
        self.restless.set(id, is_restless || self.is_careful);
        self.gather_cohort();
        let could_vote = self.voters.contains(id);
        self.voters.set(id, can_vote);
        // No operation waits for a node that could vote before.
        !(is_on_the_way || can_vote && could_vote)
    }

    /// Computes the cohort again after a change in what a node can do.
    fn gather_cohort(&mut self) {
        let mut cohort = Cohort::EMPTY;
        for id in self.every() {
            let Some(step) = self.release_step(id) else { continue };
            if self.at(id).can_be_asked() && (cohort.nodes.is_empty() || cohort.step == step) {
                cohort.step = step;
                cohort.nodes.insert(id);
            }
        }
        self.cohort = cohort;
    }

    /// Whether anything may be due for the nodes themselves.
    #[inline]
    pub(super) fn needs_care(&self, now: Now) -> bool {
        !self.restless.is_empty() || self.stalls_at <= now.attended
    }

    /// Every node has had its care in this pass.
    pub(super) fn cared_for(&mut self, now: Now) {
        // An answer to a later request is overdue no sooner than this.
        let stalls = self.nodes.iter().map(|node| node.stalls_at(now)).min();
        self.stalls_at = stalls.unwrap_or(Instant::MAX);
    }

    /// When something is due for a node, by the real clock.
    pub(super) fn next_timeout(&self, absent: Duration) -> Instant {
        self.nodes.iter().fold(Instant::MAX, |next, node| next.min(node.next_timeout(absent)))
    }

    // ---- the wishes of nodes ----

    /// The next node with a wish for its socket.
    pub(super) fn poll_wish(&mut self) -> Option<(NodeId, Connection)> {
        while let Some(id) = self.with_wish.first_node() {
            self.with_wish.remove(id);
            if let Some(wish) = self.at_mut(id).wish.take() {
                return Some((id, wish));
            }
        }
        None
    }

    /// The next node with news for people.
    pub(super) fn poll_news(&mut self) -> Option<(NodeId, Cause)> {
        while let Some(id) = self.with_news.first_node() {
            self.with_news.remove(id);
            if let Some(cause) = self.at_mut(id).trouble.take() {
                return Some((id, cause));
            }
        }
        None
    }

    /// Whether the engine waits for a connection to the node.
    pub(super) fn wants_connection(&self, id: NodeId) -> bool {
        matches!(self.get(id).map(Node::state), Some(State::Connecting { .. }))
    }

    /// Whether the engine waits for a connection to the node, and the owner has taken its wish. A
    /// connection that opens earlier belongs to an attempt that the engine has given up.
    pub(super) fn awaits_connection(&self, id: NodeId) -> bool {
        self.wants_connection(id) && !self.with_wish.contains(id)
    }

    // ---- nodes that join the lists, and nodes that have left them ----

    /// Takes these nodes behind the others. They are in no list yet.
    pub(super) fn add(
        &mut self,
        nodes: Vec<Node>,
        names: impl Iterator<Item = Box<str>>,
        now: Instant,
    ) {
        self.names = self.names.iter().cloned().chain(names).collect();
        self.shown.extend(nodes.iter().map(|_| (NodeState::Disconnected, now)));
        self.nodes.extend(nodes);
        self.restless = self.every();
    }

    /// The nodes that could vote now, in the lists or not.
    pub(super) fn able(&self) -> NodeMask {
        self.every().into_iter().filter(|&id| self.at(id).can_vote()).collect()
    }

    /// From now on these lists decide. The caller refreshes every node.
    pub(super) fn list(&mut self, electorate: &Electorate) {
        self.listed = electorate.nodes();
        self.is_careful = !electorate.takes_any();
    }

    /// The client calls itself so from now on, at connected nodes, too.
    pub(super) fn rename(&mut self, name: &str, now: Now) {
        for id in self.every() {
            self.at_mut(id).rename(name, now.attended);
            self.with_output.set(id, self.at(id).has_output());
        }
    }

    /// The client needs a node again that it may have given up.
    pub(super) fn take_back(&mut self, id: NodeId, now: Instant) {
        self.at_mut(id).take_back(now);
        self.restless.insert(id);
    }
}
