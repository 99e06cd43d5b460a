//! The cohort: the nodes that all take a request at once and in the same words, so that one
//! encoding is copied to each without a question.
//!
//! # Invariants
//!
//! - A node of the cohort is greeted, answers in time, and releases by [`Cohort::step`].

use super::Engine;
use crate::command::ReleaseStep;
use crate::node::{Node, Now, Pending, Request};
use crate::quorum::NodeMask;

/// Requests up to this long are copied as one block of constant size.
const BLOCK_LEN: usize = 128;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Cohort {
    pub(super) nodes: NodeMask,
    pub(super) step: ReleaseStep,
}

impl Cohort {
    pub(super) const EMPTY: Self = Self { nodes: NodeMask::EMPTY, step: ReleaseStep::Eval };
}

impl Engine {
    /// After a change of what a node can do: who is in the cohort now.
    pub(super) fn gather_cohort(&mut self) {
        let mut cohort = Cohort::EMPTY;
        for id in NodeMask::first(self.nodes.len()) {
            let Some(step) = self.release_step(id) else { continue };
            if self.node(id).can_be_asked() && (cohort.nodes.is_empty() || cohort.step == step) {
                cohort.step = step;
                cohort.nodes.insert(id);
            }
        }
        self.cohort = cohort;
    }

    /// Writes the scratch buffer to those of `nodes` that are in the cohort and have room; to which.
    pub(super) fn write_cohort(&mut self, nodes: NodeMask, request: Request, now: Now) -> NodeMask {
        let to = nodes.intersection(self.cohort.nodes);
        let len = self.scratch.len();
        self.scratch.extend_from_slice(&[0; BLOCK_LEN]);
        let pending = Pending { request, written_at: now.attended };
        let (written, count) = match self.scratch.first_chunk() {
            Some(block) if len <= BLOCK_LEN => copy_block(&mut self.nodes, to, block, len, pending),
            _ => {
                let bytes = self.scratch.get(..len).unwrap_or_default();
                copy_bytes(&mut self.nodes, to, bytes, pending)
            }
        };
        self.scratch.truncate(len);
        if let Some(slot) = request.slot() {
            self.slots.at_mut(slot).refs += count;
        }
        self.with_output = self.with_output.union(written);
        written
    }
}

/// Writes the first `len` bytes of `block` to those of `to` that have room: which, and how many.
fn copy_block(
    nodes: &mut [Node],
    to: NodeMask,
    block: &[u8; BLOCK_LEN],
    len: usize,
    pending: Pending,
) -> (NodeMask, u16) {
    let (mut written, mut count) = (NodeMask::EMPTY, 0);
    let mut one = NodeMask::first(1);
    for node in nodes {
        if !to.intersection(one).is_empty() && node.has_room_in_step(len) {
            node.append_block(block, len);
            node.expect_answer(pending);
            written = written.union(one);
            count += 1;
        }
        one = one.shifted();
    }
    (written, count)
}

/// Writes `bytes` to those of `to` that have room: which, and how many.
fn copy_bytes(nodes: &mut [Node], to: NodeMask, bytes: &[u8], pending: Pending) -> (NodeMask, u16) {
    let (mut written, mut count) = (NodeMask::EMPTY, 0);
    let mut one = NodeMask::first(1);
    for node in nodes {
        if !to.intersection(one).is_empty() && node.has_room_in_step(bytes.len()) {
            node.append_bytes(bytes);
            node.expect_answer(pending);
            written = written.union(one);
            count += 1;
        }
        one = one.shifted();
    }
    (written, count)
}
