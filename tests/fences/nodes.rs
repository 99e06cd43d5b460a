//! Faults of the nodes: they stand still, die, and come back with all their data or with none.

use std::path::Path;

use rand::RngExt;
use rand::rngs::StdRng;
use redbolt_rig::{Cluster, Kind, ms};

/// The memory of a killed node after its restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Kept,
    Lost,
}

/// Kinds of faults, which come in turn.
const KINDS: u64 = 5;
/// The fewest faults of a run: one of each kind. With either memory, two of the kinds are alike.
pub(crate) const FAULTS_MIN: u64 = 4;

/// How often each fault happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) kills: u64,
    pub(crate) freezes: u64,
}

/// One server of each version; `None` if one is not installed.
pub(crate) fn start(memory: Memory) -> Option<Cluster> {
    // In memory, where the machine has such a place. Memory keeps what a killed process has
    // written, and a disk that stands still is no part of the test.
    let place = Path::new("/dev/shm");
    if place.is_dir() {
        // An error means that another test was first.
        let _ = tempfile::env::override_temp_dir(place);
    }
    let kept = ["--appendonly", "yes", "--appendfsync", "always"];
    Cluster::start(&Kind::ALL, if memory == Memory::Kept { &kept } else { &[] })
}

/// A minority stands still or dies for a while. Where nodes lose their memory, all may die at once:
/// the guard is for this too.
pub(crate) fn inflict(
    round: u64,
    memory: Memory,
    cluster: &mut Cluster,
    random: &mut StdRng,
    faults: &mut Faults,
) {
    let first = random.random_range(0..cluster.len());
    let second = (first + random.random_range(1..cluster.len())) % cluster.len();
    let (frozen, killed) = match round % KINDS {
        0 | 3 if memory == Memory::Lost => (vec![], (0..cluster.len()).collect()),
        3 => (vec![], vec![first]),
        1 => (vec![first], vec![second]),
        2 => (vec![first, second], vec![]),
        _ => (vec![], vec![first, second]),
    };
    faults.freezes += frozen.len() as u64;
    faults.kills += killed.len() as u64;
    for &node in &frozen {
        cluster.node(node).freeze();
    }
    for &node in &killed {
        cluster.node_mut(node).kill9();
    }
    // This pause is the length of the fault. Without a guard, the worst fault is that all nodes die
    // and are back at once.
    if !frozen.is_empty() || killed.len() < 3 && random.random_ratio(1, 2) {
        std::thread::sleep(ms(random.random_range(20..400)));
    }
    cluster.restart(&killed);
    for &node in &frozen {
        cluster.node(node).thaw();
    }
}
