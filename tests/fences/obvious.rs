//! The obvious design, to show that the judge can fail: INCR on each node that granted the lock,
//! and the largest of the answers is the fence.

use std::sync::atomic::Ordering;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::now;
use redbolt_rig::{Cluster, Wire};

use crate::judge::Grant;
use crate::player::{Run, key};

const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";
/// The number of keys: few, so that clients compete for them.
const KEYS: usize = 4;
/// Nodes that receive nothing of an attempt, as if they stood still.
const UNREACHED: usize = 2;

/// One client: plain connections, one attempt at a time.
pub(crate) fn play(me: usize, run: &Run, cluster: &Cluster, seed: u64) -> Vec<Grant> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(me as u64));
    let mut nodes: Vec<Wire> = cluster.nodes().map(redbolt_rig::RealServer::connect).collect();
    let quorum = nodes.len() / 2 + 1;
    let (mut grants, mut count) = (Vec::new(), 0);
    while !run.is_over.load(Ordering::Relaxed) {
        count += 1;
        let (index, token) = (random.random_range(0..KEYS), format!("{me}-{count}"));
        let (lock, counter) = (key(index), format!("{}:obvious", key(index)));
        let unreached = random.random_range(0..nodes.len());
        let began = now();
        let mut granted = Vec::new();
        for place in 0..nodes.len() - UNREACHED {
            let node = (unreached + UNREACHED + place) % nodes.len();
            let set = ["SET", &lock, &token, "NX", "PX", "10000"];
            if nodes[node].ask(&set).expect("the server answers") == b"+OK\r\n" {
                granted.push(node);
            }
        }
        if granted.len() >= quorum {
            let answers = granted.iter().map(|&node| {
                let reply = nodes[node].ask(&["INCR", &counter]).expect("the server answers");
                let text = std::str::from_utf8(&reply).ok().and_then(|text| text.strip_prefix(':'));
                text.and_then(|text| text.trim_end().parse().ok()).expect("a number")
            });
            let fence = answers.max().expect("a quorum");
            let handed = now();
            let deadline = began + std::time::Duration::from_secs(10);
            grants.push(Grant {
                key: index,
                client: me,
                fence,
                began,
                handed,
                deadline,
                over: now(),
            });
            run.acquired.fetch_add(1, Ordering::Relaxed);
        }
        for node in granted {
            nodes[node].ask(&["EVAL", RELEASE, "1", &lock, &token]).expect("the server answers");
        }
    }
    grants
}
