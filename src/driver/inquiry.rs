//! [`Inquiry`]: the course of questions by which the holder of a lock becomes known. It sends nothing:
//! whoever asks puts each question to the nodes, and hands in the answers.

use super::query::Question;
use crate::quorum::{NodeMask, NodeMaskIter};
use crate::status::{Answers, Listed, SeenLock};

/// See the [module](self).
pub(crate) struct Inquiry {
    key: Vec<u8>,
    quorum: u32,
    step: Step,
    /// What is known, once the nodes have said what they hold.
    seen: Option<SeenLock>,
    /// The nodes that are still to be asked for the list of their clients.
    lists: NodeMaskIter,
}

/// What was asked last.
enum Step {
    Begin,
    Holder,
    Clients,
    Held,
}

impl Inquiry {
    pub(crate) fn new(key: &[u8], quorum: u32) -> Self {
        let lists = NodeMask::EMPTY.into_iter();
        Self { key: key.to_owned(), quorum, step: Step::Begin, seen: None, lists }
    }

    /// The next question; `None` once all is known that can be.
    pub(crate) fn next(&mut self) -> Option<Question> {
        if let Step::Begin = self.step {
            self.step = Step::Holder;
            return Some(Question::Holder(self.key.clone()));
        }
        if let Some(node) = self.lists.next() {
            self.step = Step::Clients;
            return Some(Question::Clients(node));
        }
        if let Step::Held = self.step {
            return None;
        }
        self.step = Step::Held;
        let token = self.seen.as_ref()?.drawn_token()?;
        Some(Question::Held { key: self.key.clone(), token })
    }

    /// The answers to the last question.
    pub(crate) fn take(&mut self, answers: &Answers) {
        match (&self.step, &mut self.seen) {
            (Step::Holder, _) => {
                let seen = SeenLock::new(self.key.clone(), answers.keys(), self.quorum);
                self.lists = seen.listing_nodes(answers).into_iter();
                self.seen = Some(seen);
            }
            (Step::Clients, Some(seen)) => {
                if seen.name(&Listed::read(answers)) {
                    self.lists = NodeMask::EMPTY.into_iter();
                }
            }
            (Step::Held, Some(seen)) => seen.hear(answers),
            (Step::Begin, _) | (Step::Clients | Step::Held, None) => {}
        }
    }

    /// What is known of the lock.
    pub(crate) fn into_seen(self) -> SeenLock {
        let Self { key, quorum, seen, .. } = self;
        seen.unwrap_or_else(|| SeenLock::new(key, Vec::new(), quorum))
    }
}
