//! What the complete decoder's frames say, by the request that each answers.

use super::greeting::Facts;
use super::pending::{Pending, Request};
use super::state::{Answered, Step};
use crate::command::{Answer, classify, classify_exec};
use crate::resp::{Frame, Reply};

/// What answers of this connection have left behind.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// What the greeting said.
    pub(super) facts: Facts,
    /// Answers of the greeting that are still awaited.
    pub(super) greeting_open: u32,
    /// The last answer whose bytes somebody else reads.
    pub(super) frame: Vec<u8>,
    /// Why the command of the current MULTI was not queued.
    pub(super) queued_fault: Option<Answer>,
}

impl Reading {
    /// Takes the answer to `pending` in.
    pub(super) fn step(&mut self, pending: Pending, frame: &Frame<'_>) -> Step {
        let answer = match pending.request {
            Request::Query { .. } | Request::Compare | Request::Wait { .. } => {
                self.frame.clear();
                self.frame.extend_from_slice(frame.bytes());
                return if pending.request == Request::Compare {
                    Step::Compared
                } else if matches!(pending.request, Request::Wait { .. }) {
                    Step::Waited(pending)
                } else {
                    Step::Query(pending)
                };
            }
            Request::Subscribe => return Step::Idle,
            Request::Tracked => {
                if let Reply::Integer(ms) = frame.reply() {
                    // Gone, or without an end: not one of ours.
                    if ms < 0 { Answer::Null } else { Answer::Ok }
                } else {
                    classify(&frame.reply())
                }
            }
            Request::Greeting(part) => {
                self.facts.note(part, &frame.reply());
                self.greeting_open = self.greeting_open.saturating_sub(1);
                return if self.greeting_open == 0 { Step::Greeted } else { Step::Idle };
            }
            Request::Queued => {
                let answer = classify(&frame.reply());
                let is_refused = matches!(answer, Answer::Refused(_));
                self.queued_fault = is_refused.then_some(answer);
                return Step::Idle;
            }
            Request::Proven => {
                let reply = frame.reply();
                let is_empty =
                    matches!(&reply, Reply::Array(items) if items.clone().next().is_none());
                // Null where UNWATCH is refused, so that a key of the job before is still watched.
                if is_empty || reply == Reply::Null { Answer::Ok } else { classify(&reply) }
            }
            Request::Exec(_) => {
                let answer = classify_exec(&frame.reply());
                // EXECABORT says only that something was wrong before.
                let fault = self.queued_fault.take();
                let is_refused = matches!(answer, Answer::Refused(_));
                fault.filter(|_| is_refused).unwrap_or(answer)
            }
            Request::ScriptLoad
            | Request::Set
            | Request::Release(_)
            | Request::Debt { .. }
            | Request::Prove
            | Request::Watch
            | Request::Unwatch
            | Request::Multi
            | Request::Wake
            | Request::Tell
            | Request::Tracking
            | Request::Extend { .. } => classify(&frame.reply()),
        };
        Step::Answered(Answered { pending, answer })
    }
}
