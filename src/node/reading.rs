//! The meaning of the decoder's frames, by the request that each answers.

use std::collections::VecDeque;

use super::greeting::Facts;
use super::pending::{Pending, Request};
use super::state::Step;
use crate::command::{Answer, classify, counter, time};
use crate::error::Cause;
use crate::resp::{Frame, Reply};
use crate::rules;
use crate::time::Instant;

/// The facts that the answers on this connection have shown so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// The facts of the greeting.
    pub(super) facts: Facts,
    /// Answers of the greeting that are still to come.
    pub(super) greeting_open: u32,
    /// The last answer or message whose bytes the engine reads.
    pub(super) frame: Vec<u8>,
    /// The number in the last answer that was a number.
    pub(super) number: u64,
    /// Set if an answer said that the node is not a master in service.
    pub(super) no_master: Option<Cause>,
    /// When the client wrote each look that has no answer yet.
    pub(super) looks: VecDeque<Instant>,
    /// When the client wrote each question for the node's time that has no answer yet.
    pub(super) times: VecDeque<Instant>,
    /// When the client wrote the greeting, or the last look that has its answer.
    pub(super) seen_at: Instant,
}

impl Reading {
    /// Takes the answer to `pending`.
    pub(super) fn step(&mut self, pending: Pending, frame: &Frame<'_>) -> Step {
        if let Answer::Refused(cause @ (Cause::Replica | Cause::MasterDown | Cause::Loading)) =
            classify(&frame.reply())
        {
            self.no_master = Some(cause);
        }
        let answer = match pending.request {
            Request::Query { .. } => {
                self.keep(frame);
                return Step::Query(pending);
            }
            Request::Wait { .. } => {
                self.keep(frame);
                return Step::Waited(pending);
            }
            Request::Subscribe | Request::SubscribeTransfers => return Step::Idle,
            // The script has moved the key and told the waiter.
            Request::Transfer(_) if matches!(frame.reply(), Reply::Integer(2)) => Answer::Ok,
            Request::FencedSet(_) | Request::Raise(_) | Request::Batch(_) => {
                self.number(counter, frame)
            }
            Request::Time => self.number(time, frame),
            Request::Look => {
                let is_same = self.facts.is_same_master(&frame.reply());
                self.seen_at = self.seen_at.max(self.looks.pop_front().unwrap_or_default());
                // The greeting under way tells more.
                if self.greeting_open == 0 && rules::is_look_alarming(!is_same) {
                    self.no_master.get_or_insert(Cause::Replica);
                }
                return Step::Idle;
            }
            Request::Greeting(part) => {
                self.facts.note(part, &frame.reply());
                self.greeting_open = self.greeting_open.saturating_sub(1);
                return if self.greeting_open == 0 { Step::Greeted } else { Step::Idle };
            }
            Request::Set(_)
            | Request::Release { .. }
            | Request::Transfer(_)
            | Request::Debt { .. }
            | Request::Wake(_)
            | Request::Tell
            | Request::Extend { .. } => classify(&frame.reply()),
        };
        Step::Answered(pending, answer)
    }

    /// Keeps the number of an answer for the engine.
    fn number(&mut self, read: fn(&Reply<'_>) -> Option<u64>, frame: &Frame<'_>) -> Answer {
        match read(&frame.reply()) {
            Some(number) => {
                self.number = number;
                Answer::Number
            }
            None => classify(&frame.reply()),
        }
    }

    /// Keeps the bytes of an answer for the engine.
    fn keep(&mut self, frame: &Frame<'_>) {
        self.frame.clear();
        self.frame.extend_from_slice(frame.bytes());
    }
}
