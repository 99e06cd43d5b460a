//! The bytes that the engine writes to the nodes, and the bytes that their sockets take.

use super::Nodes;
use crate::command::ReleaseStep;
use crate::node::{Node, Now, Pending, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::time::Instant;

/// A request up to this long is copied as one block of constant size.
const BLOCK_LEN: usize = 128;

impl Nodes {
    /// The client is about to wait for the releases that it owes. Nodes that are away, and are owed
    /// one, get an attempt to connect at once.
    pub(in crate::engine) fn reach_owed(&mut self, now: Instant) {
        for node in &mut self.nodes {
            node.reach_if_owed(now);
        }
    }

    /// Subscribes to transfers at each node that carries messages, in front of the next request.
    pub(in crate::engine) fn take_transfers(&mut self, now: Now) {
        for (id, node) in NodeMask::first(self.nodes.len()).into_iter().zip(&mut self.nodes) {
            node.take_transfers(now);
            self.with_output.set(id, node.has_output());
        }
    }

    /// Leaves the channels for transfers.
    pub(in crate::engine) fn leave_transfers(&mut self, now: Now) {
        for (id, node) in NodeMask::first(self.nodes.len()).into_iter().zip(&mut self.nodes) {
            node.leave_transfers(now);
            self.with_output.set(id, node.has_output());
        }
    }

    /// Writes a request to one node, unless too much waits for it.
    #[inline]
    pub(in crate::engine) fn request(
        &mut self,
        id: NodeId,
        request: Request,
        bytes: &[u8],
        attended: Instant,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(id.index()) else { return false };
        let is_written = node.request(request, bytes, attended);
        if is_written {
            self.with_output.insert(id);
        }
        is_written
    }

    /// The caller is about to write SETs or extensions: a look that is due goes in front of them.
    #[inline]
    pub(in crate::engine) fn look_again(&mut self, now: Now) {
        for id in self.restless {
            self.at_mut(id).look_again(now);
            self.with_output.set(id, self.at(id).has_output());
        }
    }

    /// Writes a message that wakes a waiter. The node must have room for it.
    pub(in crate::engine) fn wake(
        &mut self,
        id: NodeId,
        request: Request,
        bytes: &[u8],
        attended: Instant,
    ) {
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        node.append(request, bytes, attended);
        self.with_output.insert(id);
        self.waking.insert(id);
    }

    /// The release step of the cohort, if one of `nodes` is in it.
    #[inline]
    pub(in crate::engine) const fn common_release(&self, nodes: NodeMask) -> Option<ReleaseStep> {
        let is_any = !nodes.intersection(self.cohort.nodes).is_empty();
        if is_any { Some(self.cohort.step) } else { None }
    }

    /// Writes `bytes` to those of `nodes` that are in the cohort and have room. Returns those
    /// nodes, and their number. The buffer stays as it was.
    pub(in crate::engine) fn write_cohort(
        &mut self,
        nodes: NodeMask,
        request: Request,
        bytes: &mut Vec<u8>,
        attended: Instant,
    ) -> (NodeMask, u16) {
        let to = nodes.intersection(self.cohort.nodes);
        let len = bytes.len();
        bytes.extend_from_slice(&[0; BLOCK_LEN]);
        let pending = Pending { request, written_at: attended };
        let nodes = &mut self.nodes;
        let (written, count) = match bytes.first_chunk::<BLOCK_LEN>() {
            Some(block) if len <= BLOCK_LEN => {
                copy(nodes, to, len, pending, |node| node.append_block(block, len))
            }
            _ => {
                let bytes = bytes.get(..len).unwrap_or_default();
                copy(nodes, to, len, pending, |node| node.append_bytes(bytes))
            }
        };
        bytes.truncate(len);
        self.with_output = self.with_output.union(written);
        (written, count)
    }

    /// The nodes that have bytes to send.
    #[inline]
    pub(in crate::engine) const fn with_output(&self) -> NodeMask {
        self.with_output
    }

    /// As [`with_output`](Self::with_output), with a second group of the nodes whose output wakes a
    /// waiter, to write last.
    #[inline]
    pub(in crate::engine) const fn poll_writes(&mut self) -> [NodeMask; 2] {
        let waking = std::mem::replace(&mut self.waking, NodeMask::EMPTY);
        let waking = waking.intersection(self.with_output);
        [self.with_output.without(waking), waking]
    }

    /// The bytes that wait for the node's socket.
    pub(in crate::engine) fn output(&self, id: NodeId) -> &[u8] {
        self.get(id).map_or(&[], Node::output)
    }

    /// The node's socket took the first `len` bytes of its output.
    pub(in crate::engine) fn output_taken(&mut self, id: NodeId, len: usize) {
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        if node.output_taken(len) {
            self.with_output.remove(id);
        }
    }

    /// Hands the bytes that wait for the sockets of `nodes` to `write`, which returns how many
    /// bytes the socket took.
    #[inline]
    pub(in crate::engine) fn drain_output(
        &mut self,
        nodes: NodeMask,
        mut write: impl FnMut(NodeId, &[u8]) -> usize,
    ) {
        let (mut left, wanted) = (self.with_output, self.with_output.intersection(nodes));
        let mut next = NodeMask::first(1);
        for node in &mut self.nodes {
            let one = next;
            next = next.shifted();
            let Some(id) = wanted.intersection(one).first_node() else { continue };
            let len = write(id, node.output());
            if node.output_taken(len) {
                left = left.without(one);
            }
        }
        self.with_output = left;
    }
}

/// Lets `append` write `len` bytes to those of `to` that have room. Returns those nodes, and their
/// number.
#[inline]
fn copy(
    nodes: &mut [Node],
    to: NodeMask,
    len: usize,
    pending: Pending,
    append: impl Fn(&mut Node),
) -> (NodeMask, u16) {
    let (mut written, mut count) = (NodeMask::EMPTY, 0);
    let mut one = NodeMask::first(1);
    for node in nodes {
        if !to.intersection(one).is_empty() && node.has_room_unstalled(len) {
            append(node);
            node.expect_answer(pending);
            written = written.union(one);
            count += 1;
        }
        one = one.shifted();
    }
    (written, count)
}
