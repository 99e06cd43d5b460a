//! Drives the jobs of nodes that can only compare by WATCH: see [`crate::node::Jobs`].

use super::Engine;
use super::slot::SlotState;
use crate::command::{
    Answer, ExtendStep, ReleaseStep, append_compare, append_extend_queued, append_release_queued,
    append_set, append_unwatch, classify,
};
use crate::error::{Cause, Vote};
use crate::mutant::{self, Mutant};
use crate::node::{Job, JobKind, Now, Request};
use crate::quorum::NodeId;
use crate::resp::{Decoder, Limits, Reply};

impl Engine {
    /// Puts a job, a SET encoded before, behind those that wait. False if there is no room.
    pub(super) fn enqueue(&mut self, id: NodeId, kind: JobKind, slot_index: u32, now: Now) -> bool {
        // Its bytes are in the scratch buffer.
        let len = if kind == JobKind::Set { self.scratch.len() } else { 0 };
        let set_len = u32::try_from(len).unwrap_or(u32::MAX);
        if !self.node_mut(id).enqueue(Job { kind, slot: slot_index, set_len }) {
            return false;
        }
        self.slots.at_mut(slot_index).refs += 1;
        self.advance_jobs(id, now);
        true
    }

    /// Whether a job for the same key has yet to write its EXEC.
    pub(super) fn has_job_for_key(&self, id: NodeId, slot_index: u32) -> bool {
        let jobs = &self.node(id).jobs;
        if jobs.is_empty() {
            return false;
        }
        let key = self.slots.at(slot_index).key.as_bytes();
        jobs.iter().any(|job| self.slots.at(job.slot).key.as_bytes() == key)
    }

    /// Writes what may be written now: SETs up to the next transaction, and its WATCH.
    fn advance_jobs(&mut self, id: NodeId, now: Now) {
        while (self.node(id).jobs.watching.is_none() || mutant::is(Mutant::TwoWatchesInterleaved))
            && let Some(job) = self.node_mut(id).jobs.pop()
        {
            let slot = self.slots.at(job.slot);
            self.scratch.clear();
            if job.kind == JobKind::Set {
                let (key, options) = (&slot.key, &mut self.set_options);
                append_set(&mut self.scratch, key, &slot.token, slot.ttl_ms, options);
                self.node_mut_with(id, |node, scratch| {
                    node.append(Request::Set, job.slot, scratch, now.attended);
                });
                // The job's own reference goes over to the answer that is awaited.
                continue;
            }
            append_compare(&mut self.scratch, &slot.key);
            self.node_mut_with(id, |node, scratch| {
                node.append(Request::Prove, job.slot, scratch, now.attended);
                node.append(Request::Proven, job.slot, &[], now.attended);
                node.append(Request::Watch, job.slot, &[], now.attended);
                node.append(Request::Compare, job.slot, &[], now.attended);
                node.jobs.watching = Some(job);
            });
        }
    }

    fn node_mut_with(&mut self, id: NodeId, act: impl FnOnce(&mut crate::node::Node, &[u8])) {
        if let Some(node) = self.nodes.get_mut(id.index()) {
            act(node, &self.scratch);
            self.with_output.insert(id);
        }
    }

    /// MULTI, EXEC or WATCH may have been refused: then the job cannot be done this way. It stays
    /// until its GET is answered.
    pub(super) fn job_prepared(&mut self, id: NodeId, answer: Answer) {
        if answer != Answer::Ok && !mutant::is(Mutant::TransactionNotProven) {
            self.node_mut(id).jobs.refused.get_or_insert(answer);
        }
    }

    /// The value of the watched key is known.
    pub(super) fn compared(&mut self, id: NodeId, now: Now) {
        let Some(job) = self.node_mut(id).jobs.watching.take() else { return };
        if let Some(refusal) = self.node_mut(id).jobs.refused.take() {
            self.job_done(id, job, refusal, now);
            return self.advance_jobs(id, now);
        }
        let slot = self.slots.at(job.slot);
        let frame = Decoder::new(Limits::default()).frame(self.node(id).frame());
        let answer = match frame.ok().flatten().map(|frame| frame.reply()) {
            Some(Reply::Bulk(value)) if slot.token.with_wire(|wire| wire == value) => Answer::Ok,
            Some(Reply::Bulk(_) | Reply::Null) => Answer::Zero,
            Some(reply) => classify(&reply),
            None => Answer::Odd,
        };
        self.scratch.clear();
        if answer == Answer::Ok {
            let (key, token) = (&slot.key, &slot.token);
            match job.kind {
                JobKind::Extend { .. } => {
                    append_extend_queued(&mut self.scratch, key, token, slot.ttl_ms.into());
                }
                JobKind::Set | JobKind::Release | JobKind::Debt { .. } => {
                    append_release_queued(&mut self.scratch, key);
                }
            }
            self.node_mut_with(id, |node, scratch| {
                node.append(Request::Multi, job.slot, scratch, now.attended);
                node.append(Request::Queued, job.slot, &[], now.attended);
                node.append(Request::Exec(job.kind), job.slot, &[], now.attended);
            });
        } else {
            append_unwatch(&mut self.scratch);
            self.node_mut_with(id, |node, scratch| {
                node.append(Request::Unwatch, job.slot, scratch, now.attended);
            });
            self.job_done(id, job, answer, now);
        }
        self.advance_jobs(id, now);
    }

    /// EXEC was answered.
    pub(super) fn exec_answered(&mut self, id: NodeId, job: Job, answer: Answer, now: Now) {
        if answer == Answer::Null {
            // The key changed, or ended, in between: look again.
            self.node_mut(id).jobs.waiting.push_front(job);
            self.advance_jobs(id, now);
        } else {
            self.job_done(id, job, answer, now);
        }
    }

    fn job_done(&mut self, id: NodeId, job: Job, answer: Answer, now: Now) {
        match job.kind {
            JobKind::Set => {}
            JobKind::Release => {
                self.release_answered(id, job.slot, ReleaseStep::Watch, answer, now);
            }
            JobKind::Debt { again } => {
                self.debt_answered(id, job.slot, ReleaseStep::Watch, again, answer, now);
            }
            JobKind::Extend { phase } => {
                self.extension_answered(id, job.slot, ExtendStep::Watch, phase, answer, now);
            }
        }
        self.slots.unref(job.slot);
    }

    /// The connection ended; `was_sent` says whether the job's last command was written.
    pub(super) fn job_lost(&mut self, id: NodeId, job: Job, was_sent: bool, now: Now) {
        match job.kind {
            JobKind::Set => self.set_unsent(id, job.slot, now),
            JobKind::Release => self.release_lost(id, job.slot, now),
            JobKind::Debt { again } => self.debt_lost(id, job.slot, again),
            JobKind::Extend { phase } if was_sent => self.extension_lost(id, job.slot, phase, now),
            JobKind::Extend { phase } => self.extension_unsent(id, job.slot, phase, now),
        }
        self.slots.unref(job.slot);
    }

    /// A SET that waited behind a transaction was never written.
    fn set_unsent(&mut self, id: NodeId, slot_index: u32, now: Now) {
        let slot = self.slots.at_mut(slot_index);
        slot.unanswered.remove(id);
        slot.holds.remove(id);
        if slot.state == SlotState::Acquiring {
            let op = self.ops.at_mut(slot.op);
            op.round.written.remove(id);
            op.round.enter(id, Vote::Failed(Cause::Closed));
            op.blame(id, Cause::Closed);
            self.node_mut(id).counts.failed.up(Cause::Closed);
            self.decide(slot_index, now);
        }
    }
}
