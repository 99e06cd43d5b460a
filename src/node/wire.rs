//! The bytes of one connection: requests out, bounded by the room for them; and answers in, each
//! matched to its request. The client subscribes to its channels here, and learns which scripts the
//! node refuses.

use std::mem;

use bytes::Buf as _;

use super::channel::{Subscription, TransfersName};
use super::core::Node;
use super::debt::Debt;
#[cfg(any(test, feature = "sim"))]
use super::debt::Debts;
use super::pending::{Pending, Request};
#[cfg(any(test, feature = "sim"))]
use super::state::Room;
use super::state::{Now, State, Step};
use crate::command::Answer;
use crate::error::Cause;
use crate::resp::encode::append_command;
use crate::resp::{Limits, ProtocolError, Reply, quick};
use crate::rules;
use crate::time::Instant;

/// If a node does not answer, releases fill at most this part of its output; further ones become
/// debts.
const STALLED_PART: usize = 16;

/// Debts fill at most this part of the output, so that they never crowd other requests out.
const DEBT_PART: usize = 4;

/// More bytes than a subscription and its end take.
const SUBSCRIPTION_LEN: usize = 256;

/// The beginning of a `run_id`.
fn mark_of(run_id: &str) -> [u8; 8] {
    let mut mark = [0; 8];
    mark.iter_mut().zip(run_id.bytes()).for_each(|(place, byte)| *place = byte);
    mark
}

impl Node {
    // ---- requests ----

    /// Sets bounds so small that a simulation, or a test, reaches them.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn limit(&mut self, room: Room) {
        (self.room, self.debts) = (room, Debts::new(room.debts));
    }

    /// Writes a request, unless too much waits for the node.
    pub(crate) fn request(&mut self, request: Request, bytes: &[u8], attended: Instant) -> bool {
        let limit = self.room.output_len;
        let limit = if self.is_stalled() { limit / STALLED_PART } else { limit };
        if !self.has_room(bytes.len(), limit) {
            return false;
        }
        self.append(request, bytes, attended);
        true
    }

    /// Whether a request of `len` bytes may go to the output.
    #[inline]
    pub(super) fn has_room(&self, len: usize, limit: usize) -> bool {
        self.pending.len() < self.room.answers && self.output.len() + len <= limit
    }

    /// Writes a request however much waits: other means bound these requests.
    pub(crate) fn append(&mut self, request: Request, bytes: &[u8], attended: Instant) {
        self.append_bytes(bytes);
        self.expect_answer(Pending { request, written_at: attended });
    }

    /// Whether the client may write a request of `len` bytes to a node that is not stalled.
    #[inline]
    pub(crate) fn has_room_unstalled(&self, len: usize) -> bool {
        self.has_room(len, self.room.output_len)
    }

    #[inline]
    pub(crate) fn append_bytes(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Appends the first `len` bytes of `block`.
    #[inline]
    pub(crate) fn append_block<const N: usize>(&mut self, block: &[u8; N], len: usize) {
        let end = self.output.len() + len;
        self.output.extend_from_slice(block);
        self.output.truncate(end);
    }

    /// Notes that the client awaits an answer to the bytes that it has just appended.
    #[inline]
    pub(crate) fn expect_answer(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// The bytes that wait for the socket.
    #[inline]
    pub(crate) fn output(&self) -> &[u8] {
        &self.output
    }

    /// The socket took `len` bytes. Returns whether that was all.
    #[inline]
    pub(crate) fn output_taken(&mut self, len: usize) -> bool {
        if len < self.output.len() {
            self.output.advance(len);
            return false;
        }
        // Advancing to the end instead would leave less room for the next bytes.
        self.output.clear();
        true
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Removes and returns the next debt that the caller can write now. The caller writes it, or
    /// puts it back.
    pub(crate) fn next_debt(&mut self, now: Instant) -> Option<Debt> {
        if self.takes_debts() { self.debts.pop_due(now) } else { None }
    }

    /// If the node is away, and the client owes it a release for a key that may live, the client
    /// connects at once. Until that fails the node counts as on its way.
    pub(crate) fn reach_if_owed(&mut self, now: Instant) {
        if matches!(self.state, State::Disconnected { .. }) && self.debts.living(now) > 0 {
            self.is_settled = false;
            self.enter(State::Disconnected { retry_at: now });
        }
    }

    /// Whether the client could write a debt now.
    pub(super) fn takes_debts(&self) -> bool {
        let has_room = self.has_room(0, self.room.output_len / DEBT_PART);
        self.is_greeted() && !self.is_stalled() && self.dialect.release.is_some() && has_room
    }

    // ---- answers ----

    /// Whether bytes of earlier input are left over.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        !self.input.is_empty()
    }

    /// The awaited answer, if the next bytes begin one.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<&Pending> {
        if !self.input.is_empty() {
            return None;
        }
        self.pending.front()
    }

    /// The caller has read the [`awaited`](Self::awaited) answer; the node is in good standing.
    #[inline]
    pub(crate) const fn answer_read(&mut self, now: Instant) {
        self.pending.drop_front();
        // As in `heard`; its check is already done.
        self.history.last_answer = now;
    }

    /// Reads a whole short answer without the decoder.
    fn quick_answer(&mut self, input: &mut &[u8], now: Now) -> Option<Step> {
        let is_plain = !matches!(
            self.pending.front()?.request,
            Request::Query { .. }
                | Request::Time
                | Request::Wait { .. }
                | Request::Greeting(_)
                | Request::Look
                | Request::Subscribe
                | Request::SubscribeTransfers
                | Request::Transfer(_)
        );
        let (word, len) = quick(input).filter(|_| is_plain && self.input.is_empty())?;
        let pending = self.pending.pop_front()?;
        *input = input.get(len..)?;
        self.end_stall(now);
        Some(Step::Answered(pending, Answer::from(word)))
    }

    /// A stalled node is back once it has given every answer that the client awaited when it
    /// noticed the stall. The client greets it again if it may have failed over meanwhile.
    fn end_stall(&mut self, now: Now) {
        if let Some(stalled_at) = self.stalled_at
            && self.pending.front().is_none_or(|front| front.written_at >= stalled_at)
        {
            self.stalled_at = None;
            self.is_changed = true;
            if self.look_at.is_some() {
                self.end_admission(now.real);
                self.enter(State::Quarantined { until: now.real });
            }
        }
    }

    /// Reads `input` up to the next step to report, and leaves the rest in it. Frames may come
    /// whole or in pieces.
    pub(crate) fn next_step(&mut self, input: &mut &[u8], now: Now) -> Result<Step, Cause> {
        if let Some(answered) = self.quick_answer(input, now) {
            return Ok(answered);
        }
        if !self.input.is_empty() {
            self.keep(input);
        }
        loop {
            let source = if self.input.is_empty() { *input } else { &self.input };
            if source.is_empty() {
                return Ok(Step::Idle);
            }
            let is_asked = matches!(
                self.pending.front(),
                Some(Pending { request: Request::Query { .. }, .. })
            );
            let limits = if is_asked { Limits::LONG } else { Limits::DEFAULT };
            self.decoder.set_frame_len_max(limits.frame_len_max);
            let Some(frame) = self.decoder.frame(source).map_err(protocol_fault)? else {
                self.keep(input);
                return Ok(Step::Idle);
            };
            let len = frame.len();
            // A push answers no request, except SUBSCRIBE and UNSUBSCRIBE.
            let step = if rules::answers_nothing(frame.is_push()) {
                let (name, payload) = (self.login.channel.as_ref(), &mut self.reading.frame);
                let Reply::Push(items) = frame.reply() else { return Err(Cause::Protocol) };
                let is_message = self.channel.take(&items, name, &mut self.pending, payload)?;
                is_message.then_some(Step::Message)
            } else {
                let oldest = &mut || self.pending.pop_front();
                let pending = rules::request_of_answer(self.stalled_at.is_some(), oldest);
                let pending = pending.ok_or(Cause::Protocol)?;
                if let Request::Subscribe | Request::SubscribeTransfers = pending.request {
                    self.channel.refused(pending.request, &frame.reply(), now)?;
                }
                Some(self.reading.step(pending, &frame))
            };
            if self.input.is_empty() {
                *input = input.get(len..).unwrap_or_default();
            } else {
                self.input.advance(len);
            }
            self.end_stall(now);
            match step {
                None | Some(Step::Idle) => {}
                Some(Step::Greeted) => {
                    self.round_trip = Some(now.attended.saturating_since(self.greeted_at));
                    return Ok(Step::Greeted);
                }
                Some(
                    step @ (Step::Answered(..) | Step::Query(_) | Step::Waited(_) | Step::Message),
                ) => {
                    return Ok(step);
                }
            }
        }
    }

    /// Why the node is not a master in service, if an answer has said so since the last call.
    pub(crate) const fn take_no_master(&mut self) -> Option<Cause> {
        self.reading.no_master.take()
    }

    /// Keeps the bytes of an incomplete frame for the next read.
    fn keep(&mut self, input: &mut &[u8]) {
        self.input.extend_from_slice(rules::beginning_of_reply(mem::take(input)));
    }

    /// The bytes of the last answer to a query or a waiter, or of the last message.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.reading.frame
    }

    /// The node sent something: its incarnation lives. A node that is greeting or refused may be
    /// another process than the process that answered last.
    pub(crate) const fn heard(&mut self, now: Instant) {
        self.is_mute = false;
        if self.serves() {
            self.history.last_answer = now;
        }
    }

    // ---- channels ----

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
        // A busy node does not say it again, and may still tell of transfers.
        self.channel.mark = self.facts().run_id.as_deref().map(mark_of).or(self.channel.mark);
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

    /// Subscribes to transfers in front of the next request. Each later greeting does so again.
    pub(crate) fn take_transfers(&mut self, now: Now) {
        self.channel.wants_transfers = true;
        // Without the node's mark its messages would be no votes, and no client would delete the
        // key that was handed over.
        let is_able = matches!(self.channel.subscription, Subscription::Asked | Subscription::Open)
            && self.channel.again_at.is_none()
            && !self.channel.denies_transfers
            && self.channel.mark.is_some()
            && self.is_connected()
            && !self.is_stalled()
            && self.has_room_unstalled(SUBSCRIPTION_LEN);
        let Some(name) = self.login.channel.filter(|_| is_able) else { return };
        if !mem::replace(&mut self.channel.takes_transfers, true) {
            self.write_subscription(b"SUBSCRIBE", name.transfers(), now);
        }
    }

    /// Leaves the channel for transfers: a holder's script that runs behind this has no listener,
    /// and deletes the key instead.
    pub(crate) fn leave_transfers(&mut self, now: Now) {
        self.channel.wants_transfers = false;
        let Some(name) = self.login.channel else { return };
        if mem::take(&mut self.channel.takes_transfers) {
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

    /// The node answered a script with an error: the client sends it no scripts for a while. If the
    /// user may not run scripts, it gets none on this connection.
    pub(crate) fn script_refused(&mut self, answer: Answer, now: Now) {
        self.channel.refuses_scripts = true;
        self.channel.ask_again(answer, now);
    }

    /// The mark that names the node in the transfers that go through it; `None` if it is unknown.
    /// While the client greets the node again, the mark stays.
    pub(crate) const fn mark(&self) -> Option<[u8; 8]> {
        self.channel.mark
    }

    /// Whether this client hears messages through this node.
    pub(crate) fn listens(&self) -> bool {
        self.channel.subscription == Subscription::Open
    }

    /// Whether this client can receive and send messages through this node.
    pub(crate) fn has_channel(&self) -> bool {
        self.listens() && self.is_greeted() && !self.is_stalled()
    }
}

const fn protocol_fault(_: ProtocolError) -> Cause {
    Cause::Protocol
}
