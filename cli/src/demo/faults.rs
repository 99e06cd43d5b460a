//! The faults of the embedded nodes during the sale.
//!
//! # Invariants
//!
//! - At most two nodes are away at any time, so three of five always vote. The first four faults
//!   hit two nodes only, and the last one waits until all nodes vote.

use redbolt::inspect::{NodeHealth, NodeState};
use redbolt_embedded::{Memory, Nodes};

use crate::exit::Failure;

/// The faults that are still to come.
#[derive(Debug, Default)]
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
    fault(8, 1, Deed::Kill, "is killed: its port refuses"),
    fault(20, 3, Deed::Hang, "hangs: frozen, its connections open"),
    fault(32, 1, Deed::Restart, "starts again without its memory: no vote until that is safe"),
    fault(50, 3, Deed::GoOn, "wakes up, and first does what was sent to it meanwhile"),
    Fault {
        when_all_vote: true,
        ..fault(70, 0, Deed::Restart, "restarts in a blink, its memory lost: no vote either")
    },
];

const fn fault(percent: u32, node: usize, deed: Deed, text: &'static str) -> Fault {
    Fault { percent, when_all_vote: false, node, deed, text }
}

impl Faults {
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
