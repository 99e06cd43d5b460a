//! Dialects: the client speaks to each server version in its own commands, falls back where one is
//! denied, and may use any mixture of versions.

use redbolt::inspect::NodeState;
use redbolt::{Cause, Client, Unlocked};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, RealServer, TTL, causes, eventually, fresh_config, ms,
    no_quorum, taken, wait_released,
};

/// One life of a lock on all nodes: no other client gets it, and no key stays behind.
fn full_cycle(client: &Client, cluster: &Cluster, key: &str) {
    let mut lease = client.try_lock(key, TTL / 2).wait().expect("the lock is free");
    assert!(eventually(PATIENCE, || cluster.holders(key) == cluster.len()));
    taken(client.try_lock(key, TTL).wait());
    lease.extend(TTL).wait().expect("the lease is alive");
    let half = i64::try_from(TTL.as_millis() / 2).expect("a TTL is short");
    let is_extended = || {
        client.leader(key).wait().expect("nodes are asked");
        cluster.nodes().all(|node| node.pttl(key) > half)
    };
    assert!(eventually(PATIENCE, is_extended));
    assert_eq!(lease.unlock().wait().expect("the lease is ours"), Unlocked::Released);
    wait_released(client, PATIENCE);
    assert_eq!(cluster.holders(key), 0);
}

fn dialects(client: &Client) -> Vec<String> {
    client.nodes().wait().into_iter().map(|node| node.dialect.unwrap_or_default()).collect()
}

fn five_servers_of_one_version(kind: Kind, dialect: &str) {
    let Some(cluster) = Cluster::start(&[kind; 5], &[]) else { return };
    let client = cluster.client();
    for round in 0..20 {
        full_cycle(&client, &cluster, &format!("k{round}"));
    }
    assert_eq!(dialects(&client), [dialect; 5]);
    for health in client.nodes().wait() {
        let server = health.server.unwrap_or_default().to_lowercase().replace(' ', "-");
        assert!(server.starts_with(kind.name()), "{server} is {}", kind.name());
        assert_eq!(health.role.as_deref(), Some("master"));
        assert!(health.resp3 && !health.info_denied && health.debts == 0);
        assert_eq!(health.run_id.map(|id| id.len()), Some(40));
    }
}

#[test]
fn five_servers_of_redis_7_0_lock_by_scripts() {
    five_servers_of_one_version(Kind::Redis70, "EVAL / EVAL");
}

#[test]
fn five_servers_of_redis_8_0_lock_by_scripts() {
    five_servers_of_one_version(Kind::Redis80, "EVAL / EVAL");
}

#[test]
fn five_servers_of_redis_8_6_lock_by_native_commands() {
    five_servers_of_one_version(Kind::Redis86, "DELEX / SET IFEQ");
}

#[test]
fn five_servers_of_valkey_8_1_lock_by_a_script_and_a_native_command() {
    five_servers_of_one_version(Kind::Valkey81, "EVAL / SET IFEQ");
}

#[test]
fn five_servers_of_valkey_9_1_lock_by_native_commands() {
    five_servers_of_one_version(Kind::Valkey91, "DELIFEQ / SET IFEQ");
}

#[test]
fn five_servers_of_five_versions_lock_each_in_its_own_way() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    for round in 0..50 {
        full_cycle(&client, &cluster, &format!("k{round}"));
    }
    let mut dialects = dialects(&client);
    dialects.sort();
    dialects.dedup();
    assert_eq!(dialects.len(), 4, "{dialects:?}");
}

fn restrict(node: &RealServer, rules: &[&str]) {
    let command = [&["ACL", "SETUSER", "default"][..], rules].concat();
    assert_eq!(node.command(&command), b"+OK\r\n", "{rules:?}");
}

/// Denied before the client connects, and while it runs.
#[test]
fn a_denied_command_leads_to_the_next_way_of_doing_it() {
    for (kind, native) in [(Kind::Redis86, "-delex"), (Kind::Valkey91, "-delifeq")] {
        let Some(cluster) = Cluster::start(&[kind], &[]) else { return };
        let before = cluster.client();
        restrict(cluster.node(0), &[native]);
        full_cycle(&before, &cluster, "k");
        let after = cluster.client();
        full_cycle(&after, &cluster, "k");
        let health = after.nodes().wait();
        assert_eq!(health[0].state, NodeState::Admitted, "{}", kind.name());
    }
}

/// NOPERM may be about the key and not about the command: then no other command would help.
#[test]
fn a_key_that_the_user_may_not_touch_costs_the_nodes_nothing() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for node in cluster.nodes() {
        restrict(node, &["resetkeys", "~lock:*"]);
        let config = fresh_config(vec![node.url()]).node_timeout(ms(800));
        let client = Client::connect(config).unwrap();
        let before = dialects(&client);
        for _ in 0..6 {
            let ballot = no_quorum(client.try_lock("other", TTL).wait());
            assert_eq!(causes(&ballot), [Cause::KeyDenied]);
            assert_eq!(client.unlock_token("other", "token").wait().unwrap(), Unlocked::Unknown);
            let error = client.adopt("other", "another", TTL).wait().unwrap_err();
            assert!(error.to_string().contains(Cause::KeyDenied.text()), "{error}");
        }
        assert_eq!(dialects(&client), before, "{}", node.kind().name());
        let mut lease = client.try_lock("lock:1", TTL).wait().unwrap();
        lease.extend(TTL).wait().unwrap();
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    }
}

#[test]
fn a_node_without_any_way_to_release_is_refused() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for node in cluster.nodes() {
        let config = fresh_config(vec![node.url()]).node_timeout(ms(800));
        let client = Client::connect(config).unwrap();
        let lease = client.try_lock("k", TTL).wait().unwrap();
        // Old versions refuse a rule about a command that they do not have.
        restrict(node, &["-@scripting"]);
        for command in ["-delifeq", "-delex"] {
            drop(node.command(&["ACL", "SETUSER", "default", command]));
        }
        assert_ne!(lease.unlock().wait(), Ok(Unlocked::Released), "{}", node.kind().name());
        let ballot = no_quorum(client.try_lock("other", TTL).wait());
        assert_eq!(causes(&ballot), [Cause::NoDialect], "{}", node.kind().name());
        assert!(!node.exists("other"));
    }
}
