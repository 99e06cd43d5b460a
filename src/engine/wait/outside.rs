//! The outside world, as the machine knows it: its inputs and its actions.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use super::message::{self, Listed, MessageKind, Offer, RawToken, WaiterId, Waitlist};
use crate::client_name::ClientId;
use crate::key::{Key, hash};
use crate::node::Phase;
use crate::quorum::{NodeId, NodeMask};
use crate::slab::{OpIndex, SlotIndex, WakeIndex};
use crate::time::Instant;

/// The nodes that can do something now.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Reach {
    pub(in crate::engine) all: NodeMask,
    /// The nodes that carry messages.
    pub(in crate::engine) channel: NodeMask,
    /// Those of them that run the scripts which tell one client of another.
    pub(in crate::engine) scripts: NodeMask,
    /// The nodes that can be asked for a key.
    pub(in crate::engine) askable: NodeMask,
}

impl Reach {
    /// The listed nodes, from the place that the key's hash chooses. Clients that number the nodes
    /// alike ask them in the same order. So messages for one lock mostly go through one node, and
    /// different locks use different nodes.
    pub(super) fn in_key_order(self, key: &[u8]) -> impl Iterator<Item = NodeId> + use<> {
        let start = hash(key) % u64::from(self.all.count().max(1));
        let start = usize::try_from(start).unwrap_or(0);
        self.all.into_iter().skip(start).chain(self.all.into_iter().take(start))
    }

    /// The first node of `nodes`, in the key's order, that carries messages.
    pub(super) fn first_with_channel(self, nodes: NodeMask, key: &[u8]) -> Option<NodeId> {
        self.first_of(nodes.intersection(self.channel), key)
    }

    /// The first node of `nodes` in the key's order.
    pub(in crate::engine) fn first_of(self, nodes: NodeMask, key: &[u8]) -> Option<NodeId> {
        self.in_key_order(key).find(|&node| nodes.contains(node))
    }
}

/// The facts that come with an input.
pub(in crate::engine) struct View<'a> {
    pub(in crate::engine) now: Instant,
    /// Messages may have lain unread since this time. It equals `now` if the loop slept on its
    /// sockets: then the loop has read each message at once.
    pub(in crate::engine) last_pass: Instant,
    pub(in crate::engine) reach: Reach,
    /// From a request to its answer, at the slowest node of the fastest quorum.
    pub(in crate::engine) round_trip: Duration,
    /// Draws a random share, from 0 to just below 1.
    pub(in crate::engine) share: &'a mut dyn FnMut() -> f64,
}

/// The lock that a message is about, as this client knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Meant {
    /// Its slot, if this client has the lock or is about to have it.
    pub(in crate::engine) slot: Option<SlotIndex>,
    /// This client held it and has released it.
    pub(in crate::engine) is_released: bool,
    /// The call of this client to which it is being handed over.
    pub(in crate::engine) receiver: Option<OpIndex>,
    /// The slot of an attempt of this client for the same key that is under way.
    pub(in crate::engine) attempt: Option<SlotIndex>,
}

/// The request of the caller.
#[derive(Clone, Debug)]
pub(in crate::engine) struct WaitCall {
    pub(in crate::engine) key: Key,
    pub(in crate::engine) deadline: Instant,
    /// The time between two polls, if there is no holder to tell.
    pub(in crate::engine) delay: Duration,
    pub(in crate::engine) jitter: Duration,
    /// It offers to take the lock over from its holder.
    pub(in crate::engine) takes_over: bool,
}

/// A node's answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum HolderAnswer {
    /// The node does not have the key.
    Gone,
    /// The holder's token, if a Redbolt client drew it.
    Holder(Option<RawToken>),
    /// Whether any client received the announcement.
    Heard(bool),
    /// The holder, the milliseconds that the key still lives if it has a TTL, and whether any
    /// client received the announcement.
    Introduced { holder: Option<RawToken>, remaining: Option<u32>, is_heard: bool },
    /// The node does not run the script.
    Refused,
}

/// A call that was woken a moment ago.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Successor {
    pub(super) id: WaiterId,
    /// The node that carried the wake: later messages through it come behind the wake.
    pub(super) node: NodeId,
    /// The call was given the turn.
    pub(super) is_turn: bool,
    /// The lock was handed over to it, rather than released for it.
    pub(super) is_handed: bool,
    /// The calls that wait behind it, in the order of their turns.
    pub(super) behind: SmallVec<[WaiterId; 4]>,
    pub(super) until: Instant,
}

impl Successor {
    /// The call to which later calls are announced: the last in the queue.
    pub(super) fn last(&self) -> WaiterId {
        self.behind.last().copied().unwrap_or(self.id)
    }

    /// Whether the call has its turn, or its place in the list, already.
    pub(super) fn has(&self, id: WaiterId) -> bool {
        self.id == id || self.behind.contains(&id)
    }
}

/// An input for a call that waits. An answer is always to the call's last question.
#[derive(Debug)]
pub(in crate::engine) enum Input {
    /// The first attempt is under way, and a holder is to hear of the call at once.
    Begun,
    /// These nodes denied the attempt, which is released.
    Denied(NodeMask),
    /// The attempt failed, but not because another client holds the key.
    Failed,
    /// The call's plan asks for the next attempt.
    Retry,
    /// Another call was woken and has its turn first.
    Behind(Successor),
    /// The call's turn has come, and the listed calls wait behind it.
    Turn(Waitlist),
    /// A call of the named client waits behind the call.
    Follower(ClientId),
    /// A node has handed the lock over to the call, and the listed calls wait behind it. Once a
    /// quorum has, `row` is the number of transfers in a row.
    Transferred {
        list: Waitlist,
        row: Option<u8>,
    },
    Answer(HolderAnswer),
    /// There was no room for the question.
    Unwritten,
    /// No answer will come.
    Unanswered,
    /// The timer is due.
    Due,
}

/// The bytes of a message to publish; valid until the engine has taken all actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Text {
    pub(in crate::engine) to: ClientId,
    bytes: Range<usize>,
}

/// A task for the engine, which does its tasks in order. If there is no room for a question, an
/// announcement or a wake, the engine tells the machine at once. So such an action is the last of an
/// input, and so is a [`Try`](Self::Try).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Action {
    /// Set the call's one timer.
    Timer { op: OpIndex, at: Instant },
    /// Set the timer: the call is still until then, unless it is woken.
    Listen { op: OpIndex, at: Instant },
    /// Ask for the holder's token.
    Poll { op: OpIndex, node: NodeId, phase: Phase },
    /// Publish that the call waits, with its offer, and await the answer.
    Announce { op: OpIndex, node: NodeId, phase: Phase, text: Text },
    /// Ask for the holder and the key's TTL, and have the node tell the holder that the call waits,
    /// with its offer.
    Introduce { op: OpIndex, node: NodeId, phase: Phase, text: Text },
    /// No client was told of the call: its offer need not be remembered.
    Withdraw { op: OpIndex },
    /// Publish a wake, whose answer is awaited.
    Wake { wake: WakeIndex, node: NodeId, text: Text },
    /// Publish a message, if there is room for it.
    Tell { node: NodeId, text: Text },
    /// Begin the call's next attempt: everywhere, or at one node before the others.
    Try { op: OpIndex, gate: Option<NodeId> },
    /// The call was given its turn, by a message through the node or by another call of this
    /// client. The engine only notes it.
    Woken { op: OpIndex, node: Option<NodeId> },
}

impl Action {
    /// Whether the action is the last of its input.
    const fn is_last(&self) -> bool {
        match self {
            Self::Poll { .. }
            | Self::Announce { .. }
            | Self::Introduce { .. }
            | Self::Wake { .. }
            | Self::Try { .. } => true,
            Self::Timer { .. }
            | Self::Listen { .. }
            | Self::Tell { .. }
            | Self::Withdraw { .. }
            | Self::Woken { .. } => false,
        }
    }
}

/// The actions that were not taken yet.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Actions {
    queue: VecDeque<Action>,
    texts: Vec<u8>,
    /// The machine has pushed the last action of the present input.
    is_ended: bool,
}

impl Actions {
    pub(super) fn push(&mut self, action: Action) {
        debug_assert!(!self.is_ended, "{action:?} comes too late");
        self.is_ended = action.is_last();
        self.queue.push_back(action);
    }

    /// Another input comes: its actions follow those that are not done yet.
    pub(in crate::engine) const fn begin_input(&mut self) {
        self.is_ended = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next action.
    pub(in crate::engine) fn pop(&mut self) -> Option<Action> {
        let action = self.queue.pop_front();
        if action.is_none() {
            self.texts.clear();
        }
        action
    }

    /// Encodes a message for the client that drew `token`, or the waiter that it names.
    pub(super) fn write(
        &mut self,
        kind: (MessageKind, u8),
        sender: Listed,
        token: &RawToken,
        list: impl ExactSizeIterator<Item = Listed>,
        key: &[u8],
    ) -> Text {
        let start = self.texts.len();
        message::append(&mut self.texts, kind, sender, token, list, key);
        Text { to: ClientId::of(token), bytes: start..self.texts.len() }
    }

    /// Puts what a call offers into the message of an action that was just taken.
    pub(in crate::engine) fn put_offer(&mut self, text: &Text, offer: Offer) {
        if let Some(message) = self.texts.get_mut(text.bytes.clone()) {
            message::put_offer(message, offer);
        }
    }

    /// The message of an action that was just taken.
    pub(in crate::engine) fn bytes(&self, text: &Text) -> &[u8] {
        self.texts.get(text.bytes.clone()).unwrap_or_default()
    }
}
