//! Compare-and-delete and compare-and-extend as WATCH, GET, MULTI .. EXEC, for servers that deny
//! scripts and have no command for it.
//!
//! # Invariants
//!
//! - One job watches at a time: WATCH belongs to the whole connection, and EXEC clears every watch.
//!   The next WATCH is written behind the EXEC, or the UNWATCH, of the one before.
//! - A SET of a key that a waiting job is for waits behind that job. What waits has its room in the
//!   output reserved: it goes out in one burst.

use std::collections::VecDeque;

use super::pending::Phase;
use crate::command::Answer;

/// What a job will have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// No transaction: a SET that must go behind the jobs before it.
    Set,
    Release,
    Debt {
        again: bool,
    },
    Extend {
        phase: Phase,
    },
}

/// One job for a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) slot: u32,
    /// Of a SET: its bytes.
    pub(crate) set_len: u32,
}

/// The jobs of one connection that have not written their EXEC.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) waiting: VecDeque<Job>,
    /// WATCH and GET are written, and the GET has no answer yet.
    pub(crate) watching: Option<Job>,
    /// What its WATCH was refused with. The GET behind it will be answered all the same.
    pub(crate) refused: Option<Answer>,
    /// The SETs among those that wait, and their bytes: they go out all at once.
    sets: usize,
    sets_len: usize,
}

/// Debts are made jobs only while fewer than this wait.
pub(super) const JOBS_OF_DEBTS_MAX: usize = 64;

impl Jobs {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.watching.iter().chain(&self.waiting)
    }

    /// Puts a job behind those that wait.
    pub(super) fn push(&mut self, job: Job) {
        self.sets += usize::from(job.kind == JobKind::Set);
        self.sets_len += job.set_len as usize;
        self.waiting.push_back(job);
    }

    /// Takes the job out that waits the longest.
    pub(crate) fn pop(&mut self) -> Option<Job> {
        let job = self.waiting.pop_front()?;
        self.sets -= usize::from(job.kind == JobKind::Set);
        self.sets_len -= job.set_len as usize;
        Some(job)
    }

    /// How many requests the waiting SETs are, and how many bytes.
    pub(super) const fn reserved(&self) -> (usize, usize) {
        (self.sets, self.sets_len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.watching.is_none() && self.waiting.is_empty()
    }
}
