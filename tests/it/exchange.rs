//! A fleet exchanges all its nodes while it runs: clients of neighbouring steps exclude each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, LockError, LockOptions, Retry};

use super::common::{PATIENCE, eventually, ms};
use redbolt_rig::Cluster;

const MAX_TTL: Duration = Duration::from_secs(2);

/// A configuration of the old list, of the next one, or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Old,
    Joint,
    New,
}

fn client(step: Step, cluster: &Cluster) -> Client {
    let urls = cluster.urls();
    let (old, new) = (urls.iter().take(3), urls.iter().skip(2));
    let config = match step {
        Step::Old => Config::new(old),
        Step::Joint => Config::new(old).and_then(|config| config.next_nodes(new)),
        Step::New => Config::new(new),
    };
    let config = config.expect("lists of nodes");
    let retry = Retry::every(ms(2), ms(8)).timeout(PATIENCE);
    let client = Client::open(config.max_ttl(MAX_TTL).retry(retry)).expect("a client");
    let nodes = client.nodes().wait().len();
    // The servers are too young to vote at first.
    let all_vote = || usize::try_from(client.voters().count()) == Ok(nodes);
    assert!(eventually(PATIENCE, all_vote) && client.is_ready(), "{client:?}");
    client
}

/// Two clients of each step count under one lock, until all have had turns.
fn count(steps: [Step; 2], cluster: &Cluster) {
    let (count, turns) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let clients = [steps[0], steps[0], steps[1], steps[1]].map(|step| client(step, cluster));
    thread::scope(|scope| {
        let workers = clients.each_ref().map(|client| {
            scope.spawn(|| {
                let mut own = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(guard) = client.lock("stock", MAX_TTL).wait() else { continue };
                    let before = count.load(Ordering::Relaxed);
                    thread::yield_now();
                    assert!(guard.remaining() > MAX_TTL / 4, "a machine that stands still");
                    count.store(before + 1, Ordering::Relaxed);
                    drop(guard);
                    own += 1;
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                own
            })
        });
        let is_enough = || turns.load(Ordering::Relaxed) > 400;
        let has_run = eventually(PATIENCE, is_enough);
        is_over.store(true, Ordering::Relaxed);
        let own = workers.map(|worker| worker.join().expect("no panic"));
        assert!(has_run && own.iter().all(|turns| *turns > 10), "{steps:?}: {own:?}");
    });
    assert_eq!(count.into_inner(), turns.into_inner(), "{steps:?}: two held the lock at once");
    assert!(eventually(PATIENCE, || cluster.holders("stock") == 0), "keys are left behind");
}

#[test]
fn a_fleet_exchanges_its_nodes_step_by_step_and_no_two_clients_hold_one_lock() {
    let Some(cluster) = Cluster::mixed(7) else { return };
    count([Step::Old, Step::Joint], &cluster);
    count([Step::Joint, Step::New], &cluster);
}

#[test]
fn a_lease_of_one_step_keeps_the_clients_of_the_next_one_out_and_no_further() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let [old, joint, new] = [Step::Old, Step::Joint, Step::New].map(|it| client(it, &cluster));
    let is_taken =
        |client: &Client| matches!(client.try_lock("k", MAX_TTL).wait(), Err(LockError::Taken(_)));
    let held = old.try_lock("k", LockOptions::new(MAX_TTL).keep_alive()).wait().expect("free");
    assert!(is_taken(&joint));
    // That is why no client of the new list may run yet.
    drop(new.try_lock("k", MAX_TTL).wait().expect("it does not ask the old list"));
    drop(held);
    let held = joint.lock("k", MAX_TTL).wait().expect("free");
    assert!(is_taken(&old) && is_taken(&new));
    drop(held);
    let held = new.lock("k", MAX_TTL).wait().expect("free");
    assert!(is_taken(&joint));
    drop(held);
    assert!(joint.is_ready() && joint.quorum() == 2);
}
