//! The client subscribes to its channels at one node, and learns which scripts the node refuses.

use super::channel::{Subscription, TransfersName};
use super::core::Node;
use super::pending::{Pending, Request};
use super::state::Now;
use crate::command::Answer;
use crate::resp::encode::append_command;

/// More bytes than a subscription and its end take.
const SUBSCRIPTION_LEN: usize = 256;

/// The beginning of a `run_id`.
fn mark_of(run_id: &str) -> [u8; 8] {
    let mut mark = [0; 8];
    mark.iter_mut().zip(run_id.bytes()).for_each(|(place, byte)| *place = byte);
    mark
}

impl Node {
    /// Repeats the requests that the node has refused, if it is time.
    pub(super) fn subscribe_again(&mut self, now: Now) {
        if self.is_greeted() && self.channel.again_at.is_some_and(|at| at <= now.real) {
            (self.channel.again_at, self.channel.refuses_scripts) = (None, false);
            self.subscribe(now);
        }
    }

    /// After a greeting in RESP3: subscribes to this client's channel, unless the client has done
    /// so.
    pub(super) fn subscribe(&mut self, now: Now) {
        self.channel.mark = self.facts().run_id.as_deref().map(mark_of);
        let Some(name) = self.login.channel.filter(|_| self.reading.facts.resp3) else { return };
        if self.channel.subscription == Subscription::None {
            append_command(&mut self.output, &[b"SUBSCRIBE", name.as_bytes()]);
            let written_at = now.attended;
            let pending = Pending { request: Request::Subscribe, written_at };
            self.pending.push_back(pending);
            self.channel.subscription = Subscription::Asked;
        }
        if self.channel.wants_transfers {
            self.take_transfers(now);
        }
    }

    /// Subscribes to transfers, in front of the next request, and after each greeting.
    pub(crate) fn take_transfers(&mut self, now: Now) {
        self.channel.wants_transfers = true;
        // Messages of a node without a mark would be no vote, and no client would delete its key.
        let is_able = matches!(self.channel.subscription, Subscription::Asked | Subscription::Open)
            && self.channel.again_at.is_none()
            && !self.channel.denies_transfers
            && self.channel.mark.is_some()
            && self.is_connected()
            && !self.is_stalled()
            && self.has_room_in_step(SUBSCRIPTION_LEN);
        let Some(name) = self.login.channel.filter(|_| is_able) else { return };
        if !std::mem::replace(&mut self.channel.takes_transfers, true) {
            self.write_subscription(b"SUBSCRIBE", name.transfers(), now);
        }
    }

    /// Leaves the channel for transfers: a holder's script that runs behind this has no listener,
    /// and deletes the key instead.
    pub(crate) fn leave_transfers(&mut self, now: Now) {
        self.channel.wants_transfers = false;
        let Some(name) = self.login.channel else { return };
        if std::mem::take(&mut self.channel.takes_transfers) {
            self.write_subscription(b"UNSUBSCRIBE", name.transfers(), now);
        }
    }

    fn write_subscription(&mut self, command: &[u8], name: TransfersName, now: Now) {
        append_command(&mut self.output, &[command, name.as_bytes()]);
        let written_at = now.attended;
        self.pending.push_back(Pending { request: Request::SubscribeTransfers, written_at });
    }

    /// Whether this client has subscribed to transfers on this connection, and has not left.
    pub(crate) const fn takes_transfers(&self) -> bool {
        self.channel.takes_transfers
    }

    /// Whether scripts may go to the node: introductions, transfers, and batches for one key.
    pub(crate) const fn runs_scripts(&self) -> bool {
        self.can_be_asked() && !self.channel.refuses_scripts
    }

    /// Whether the node hands locks over for this client.
    pub(crate) const fn runs_transfers(&self) -> bool {
        self.runs_scripts() && self.mark().is_some()
    }

    /// The node answered a script with an error: it gets none for a while. If the user may not run
    /// scripts, it gets none on this connection.
    pub(crate) fn script_refused(&mut self, answer: Answer, now: Now) {
        self.channel.refuses_scripts = true;
        self.channel.ask_again(answer, now);
    }

    /// The mark that names the node in the transfers that go through it; `None` if it is unknown.
    /// While the client greets the node again, the mark stays.
    pub(crate) const fn mark(&self) -> Option<[u8; 8]> {
        self.channel.mark
    }

    /// Whether this client can receive and send messages through this node.
    pub(crate) fn has_channel(&self) -> bool {
        self.channel.subscription == Subscription::Open && self.is_greeted() && !self.is_stalled()
    }
}
