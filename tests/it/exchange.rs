//! A fleet exchanges all its nodes while it runs: clients of neighbouring steps exclude each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Cause, Client, Config, ConnectError, LockError, LockOptions, Retry};

use super::common::{PATIENCE, causes, ends_within, eventually, ms};
use redbolt_rig::Cluster;

/// The guard of this TTL ends between two seconds of the servers' ages: a server that is old enough for
/// one client is old enough for the next.
const MAX_TTL: Duration = Duration::from_millis(1_800);

/// A configuration of the old list, of the next one, or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Old,
    Joint,
    New,
}

fn config(step: Step, cluster: &Cluster) -> Config {
    let urls = cluster.urls();
    let (old, new) = (urls.iter().take(3), urls.iter().skip(2));
    let config = match step {
        Step::Old => Config::new(old),
        Step::Joint => Config::new(old).and_then(|config| config.next_nodes(new)),
        Step::New => Config::new(new),
    };
    let retry = Retry::every(ms(2), ms(8)).timeout(PATIENCE);
    let config = config.expect("lists of nodes").max_ttl(MAX_TTL).retry(retry);
    // One try of a lock must do, also on a busy machine.
    config.max_clock_skew(ms(1)).node_timeout(ms(500))
}

fn client(step: Step, cluster: &Cluster) -> Client {
    let client = Client::open(config(step, cluster)).expect("a client");
    let nodes = client.nodes().wait().len();
    // The servers are too young to vote at first.
    let all_vote = || usize::try_from(client.voters().count()) == Ok(nodes);
    assert!(eventually(PATIENCE, all_vote) && client.is_ready(), "{client:?}");
    client
}

/// The clients take a step one after the other. After each step, clients take locks for some turns.
fn step(to: Step, clients: &[Client], cluster: &Cluster, turns: &AtomicU64) {
    let has_turns = || {
        let before = turns.load(Ordering::Relaxed);
        eventually(PATIENCE, || turns.load(Ordering::Relaxed) > before + 50)
    };
    for client in clients {
        client.set_nodes(&config(to, cluster)).wait().expect("a list stays");
        assert!(has_turns());
    }
    for client in clients {
        assert!(eventually(PATIENCE, || !client.is_exchanging()), "{to:?}: {client:?}");
    }
    assert!(has_turns());
}

#[test]
fn a_fleet_exchanges_its_nodes_while_it_runs_and_no_two_clients_hold_one_lock() {
    let Some(cluster) = Cluster::mixed(7) else { return };
    let (count, turns) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let clients = [(); 4].map(|()| client(Step::Old, &cluster));
    let [leader, ..] = &clients;
    let kept = LockOptions::new(MAX_TTL).keep_alive();
    let led = leader.try_lock("leader", kept).wait().expect("free");
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
        for to in [Step::Joint, Step::New] {
            step(to, &clients, &cluster, &turns);
            assert!(!led.is_lost(), "{to:?}");
        }
        is_over.store(true, Ordering::Relaxed);
        let own = workers.map(|worker| worker.join().expect("no panic"));
        assert!(own.iter().all(|turns| *turns > 10), "{own:?}");
    });
    assert_eq!(count.into_inner(), turns.into_inner(), "two held the lock at once");
    let other = client(Step::New, &cluster);
    let taken = other.try_lock("leader", MAX_TTL).wait();
    assert!(matches!(taken, Err(LockError::Taken(_))), "{taken:?}");
    drop(led);
    let is_left = |key| cluster.holders(key) > 0;
    assert!(
        eventually(PATIENCE, || !is_left("stock") && !is_left("leader")),
        "keys are left behind"
    );
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

#[test]
fn a_client_does_not_connect_while_a_quorum_of_the_next_nodes_does_not_answer() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let timeout = ms(1_000);
    let connect = |step| Client::connect(config(step, &cluster).connect_timeout(timeout));
    // The servers are too young to vote at first, and the next client may learn it a moment later.
    let all_vote = || connect(Step::Joint).is_ok_and(|client| client.voters().count() == 5);
    assert!(eventually(PATIENCE, || all_vote() && all_vote()));
    let frozen = [cluster.node(3), cluster.node(4)];
    // A server that is still frozen at the end is killed with the cluster.
    frozen.iter().for_each(|node| node.freeze());
    drop(connect(Step::Old).expect("the present list answers"));
    let error = ends_within(timeout, || connect(Step::Joint)).expect_err("two are frozen");
    let ConnectError::NoQuorum(ballot) = error else { panic!("{error}") };
    let (present, away) = (Cause::None, Cause::ConnectTimeout);
    assert_eq!(causes(&ballot), [present, present, present, away, away]);
    let counts = "3 of 5 granted, a quorum of each list needed";
    assert!(ballot.to_string().starts_with(counts), "{ballot}");
    frozen.iter().for_each(|node| node.thaw());
    assert!(eventually(PATIENCE, || connect(Step::Joint).is_ok()));
}
