//! Direct wake where nodes are down: messages still pass the lock from client to client.

use std::thread;

use redbolt::Client;

use super::common::{Clients as _, Cluster, Kind, PATIENCE, RealServer, TTL, ms, wait_released};
use super::waiting::SELDOM;

/// Turns of each of two clients.
const TURNS: u32 = 25;

fn two_clients(cluster: &Cluster) -> [Client; 2] {
    // On a busy machine nodes answer late, and an attempt without a quorum is not made again soon.
    let config = cluster.config().node_timeout(ms(500)).retry(SELDOM.timeout(PATIENCE));
    [(); 2].map(|()| Client::connect(config.clone()).expect("the nodes are there"))
}

/// How often clients asked the answering nodes which token holds a key, without the scripts' own
/// questions.
fn looks(servers: &[&RealServer]) -> u64 {
    // A script that runs between the two looks must not count for more than its question.
    let plain = |server: &&RealServer| {
        let scripts = server.calls("eval");
        server.calls("get").saturating_sub(scripts)
    };
    servers.iter().map(plain).sum()
}

/// Both clients take their turns, one after the other. Returns how often they looked for the holder
/// of the lock.
fn take_turns(clients: &[Client; 2], servers: &[&RealServer]) -> u64 {
    let before = looks(servers);
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let lease = client.lock("k", TTL).wait().expect("its turn comes");
                    // The other client queues meanwhile; if it does not, the same client's next
                    // turn costs no look.
                    thread::sleep(ms(1));
                    lease.unlock().wait().expect("it is held");
                }
                wait_released(client, ms(50));
            });
        }
    });
    looks(servers).saturating_sub(before)
}

/// A client that is not woken looks at the key itself, at least twice per turn. On a busy machine a
/// look is due now and then all the same.
fn assert_woken(clients: &[Client; 2], servers: &[&RealServer], what: &str) {
    let tries = (0..3).map(|_| take_turns(clients, servers));
    let all: Vec<_> = tries.take_while(|looks| *looks >= u64::from(TURNS)).collect();
    assert!(all.len() < 3, "{what}: {all:?} looks in {} turns", 2 * TURNS);
}

#[test]
fn a_frozen_node_keeps_nobody_from_being_woken() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 5], &[]) else { return };
    let clients = two_clients(&cluster);
    for frozen in 0..5 {
        cluster.node(frozen).freeze();
        let up: Vec<_> =
            (0..5).filter(|&node| node != frozen).map(|node| cluster.node(node)).collect();
        assert_woken(&clients, &up, &format!("node {frozen} is frozen"));
        cluster.node(frozen).thaw();
    }
}

/// The client tells restarted nodes anew which messages it listens for, also the node that carried
/// them before.
#[test]
fn waiters_are_woken_again_after_two_of_five_nodes_restarted() {
    let Some(mut cluster) = Cluster::start(&[Kind::Valkey91; 5], &[]) else { return };
    let clients = two_clients(&cluster);
    for first in 0..5 {
        for node in [first, (first + 1) % 5] {
            cluster.node_mut(node).restart();
        }
        let up: Vec<_> = cluster.nodes().collect();
        assert_woken(&clients, &up, &format!("node {first} and the next have restarted"));
    }
}
