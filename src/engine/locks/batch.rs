//! Batches: one command that takes the place of a SET for each of several attempts.
//!
//! # Invariants
//!
//! - A batch lives until each node that it was written to has answered, or its connection has ended.

use std::sync::Arc;

use crate::quorum::{NodeId, NodeMask};
use crate::slab::{BatchIndex, Slab, SlotIndex};

/// One command for several attempts, in the order of its keys.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Batch {
    pub(super) kind: BatchKind,
    slots: Arc<Vec<SlotIndex>>,
    /// The nodes whose answer the client awaits.
    awaited: NodeMask,
}

/// The keys that a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum BatchKind {
    /// The first one that is free.
    FirstFree,
    /// All of them, or none.
    All,
}

/// All batches of an engine.
pub(in crate::engine) type Batches = Slab<BatchIndex, Batch>;

impl Slab<BatchIndex, Batch> {
    /// Takes a place for a batch that is about to be written.
    pub(super) fn open(
        &mut self,
        kind: BatchKind,
        slots: Arc<Vec<SlotIndex>>,
    ) -> Option<BatchIndex> {
        self.insert(Batch { kind, slots, awaited: NodeMask::EMPTY })
    }

    /// The batch went to these nodes.
    pub(super) fn written(&mut self, index: BatchIndex, nodes: NodeMask) {
        self.at_mut(index).awaited = nodes;
        if nodes.is_empty() {
            self.give_back(index);
        }
    }

    /// No more is to come from this node. Returns the attempts of the batch.
    pub(super) fn ended(&mut self, index: BatchIndex, id: NodeId) -> Arc<Vec<SlotIndex>> {
        let batch = self.at_mut(index);
        batch.awaited.remove(id);
        let (slots, is_over) = (Arc::clone(&batch.slots), batch.awaited.is_empty());
        if is_over {
            self.give_back(index);
        }
        slots
    }
}
