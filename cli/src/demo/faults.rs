//! The faults of the embedded nodes during the sale.
//!
//! # Invariants
//!
//! - At most two nodes are away at any time, so three of five always vote. The first four faults
//!   concern two nodes only, and the last one waits until all nodes vote.

use redbolt::inspect::{NodeHealth, NodeState};
use redbolt_embedded::{Memory, Nodes};

use crate::exit::Failure;

/// The faults that are still to come.
#[derive(Debug)]
pub(super) struct Faults {
    next: usize,
}

struct Fault {
    /// Due when this percentage of the stock is sold.
    percent: u32,
    /// Due only while all nodes vote.
    when_all_vote: bool,
    node: usize,
    deed: Deed,
    text: &'static str,
}

enum Deed {
    Kill,
    Hang,
    GoOn,
    Restart,
}

const SCRIPT: [Fault; 5] = [
    Fault {
        percent: 8,
        when_all_vote: false,
        node: 1,
        deed: Deed::Kill,
        text: "is killed: its port refuses",
    },
    Fault {
        percent: 20,
        when_all_vote: false,
        node: 3,
        deed: Deed::Hang,
        text: "hangs: frozen, its connections open",
    },
    Fault {
        percent: 32,
        when_all_vote: false,
        node: 1,
        deed: Deed::Restart,
        text: "starts again without its memory: no vote until that is safe",
    },
    Fault {
        percent: 50,
        when_all_vote: false,
        node: 3,
        deed: Deed::GoOn,
        text: "wakes up, and first does what was sent to it meanwhile",
    },
    Fault {
        percent: 70,
        when_all_vote: true,
        node: 0,
        deed: Deed::Restart,
        text: "restarts in a blink, its memory lost: no vote either",
    },
];

impl Faults {
    pub(super) const fn new() -> Self {
        Self { next: 0 }
    }

    /// Carries out the fault that is due once `sold` of `stock` are sold, and reports it.
    pub(super) fn act(
        &mut self,
        nodes: &Nodes,
        seen: &[NodeHealth],
        sold: u32,
        stock: u32,
    ) -> Result<Option<String>, Failure> {
        let Some(fault) = SCRIPT.get(self.next) else { return Ok(None) };
        let is_due = u64::from(sold) * 100 >= u64::from(fault.percent) * u64::from(stock);
        let all_vote = seen.iter().all(|node| node.state == NodeState::Admitted);
        if !is_due || (fault.when_all_vote && !all_vote) {
            return Ok(None);
        }
        self.next += 1;
        match fault.deed {
            Deed::Kill => nodes.kill(fault.node)?,
            Deed::Hang => nodes.pause(fault.node)?,
            Deed::GoOn => nodes.resume(fault.node)?,
            Deed::Restart => nodes.restart(fault.node, Memory::Lost)?,
        }
        Ok(Some(format!("node {} {}", fault.node + 1, fault.text)))
    }
}
