//! The first-in first-out list of what one connection still owes an answer to.
//!
//! # Invariants
//!
//! - Reply n on a connection answers request n: an entry is taken by exactly one reply, or by the
//!   end of the connection. It is never taken out because its caller has gone.

use std::collections::VecDeque;

use crate::command::{ExtendStep, ReleaseStep};
use crate::node::transaction::JobKind;
use crate::time::Instant;

/// What kind of request an answer is awaited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Part of the greeting; the node reads the answer itself.
    Greeting(GreetingPart),
    /// `SCRIPT LOAD`; the answer changes nothing, EVALSHA will tell.
    ScriptLoad,
    /// The SET of an attempt.
    Set,
    /// The compare-and-delete of a slot.
    Release(ReleaseStep),
    /// A compare-and-delete that had been owed; `again`: it will be sent once more.
    Debt {
        step: ReleaseStep,
        again: bool,
    },
    /// The compare-and-extend of a slot, its `phase`-th.
    Extend {
        step: ExtendStep,
        phase: u16,
    },
    /// `WATCH`, of the job that is watching.
    Watch,
    /// `GET` of a watched key: its value decides the job.
    Compare,
    Unwatch,
    Multi,
    /// The command between MULTI and EXEC.
    Queued,
    /// The end of a job.
    Exec(JobKind),
    /// Part `part` of a query; `slot` is the operation's index, `phase` the low bits of its
    /// generation.
    Query {
        part: u8,
        phase: u16,
    },
}

/// The commands of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GreetingPart {
    Hello,
    Auth,
    SetName,
    Select,
    InfoServer,
    InfoMemory,
    InfoPersistence,
    InfoReplication,
}

/// One awaited answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    /// The slot or operation it is for; [`NO_SLOT`] for the node's own requests.
    pub(crate) slot: u32,
    /// When it was written, on the attended clock.
    pub(crate) written_at: Instant,
}

pub(crate) const NO_SLOT: u32 = u32::MAX;

pub(crate) type PendingQueue = VecDeque<Pending>;
