//! The health of the nodes, as a readiness endpoint needs it.

use redbolt::driver::Driver;
use redbolt::inspect::{NodeHealth, NodeState};
use redbolt::{Cause, Client, RestartGuard};

use super::common::{Clients as _, Cluster, Kind, PATIENCE, TTL, eventually, ms};

fn drive(client: &Client, until: impl Fn(&Client) -> bool) {
    assert!(eventually(PATIENCE, || { until(client) }), "{:#?}", client.nodes().wait());
}

/// A JSON object, written by hand: every value is a number, a word or a name.
fn json(node: &NodeHealth) -> String {
    format!(
        r#"{{"node":{:?},"state":"{}","cause":"{}","votes":{},"since_ms":{},"debts":{}}}"#,
        node.name,
        node.state.name(),
        node.cause.name(),
        node.votes,
        node.since.as_millis(),
        node.debts,
    )
}

#[test]
fn a_client_is_ready_while_a_quorum_may_vote() {
    let Some(mut cluster) = Cluster::start(&[Kind::Valkey91, Kind::Redis86, Kind::Redis70], &[])
    else {
        return;
    };
    let client = Client::open(cluster.config().node_timeout(ms(500))).unwrap();
    drive(&client, |client| client.voters().count() == 3);
    drive(&client, |client| client.nodes().wait().iter().all(|node| node.direct_wake));
    for node in client.nodes().wait() {
        assert!(node.votes && node.state == NodeState::Admitted, "{node:?}");
        assert!(node.until.is_none() && node.cause == Cause::None, "{node:?}");
        assert!(node.round_trip.is_some_and(|time| time < PATIENCE), "{node:?}");
        assert!(node.silence.is_some() && node.since <= PATIENCE * 2, "{node:?}");
        assert!((node.debts, node.unanswered) == (0, 0), "{node:?}");
        let parsed: serde_json::Value = serde_json::from_str(&json(&node)).unwrap();
        assert_eq!((&parsed["state"], &parsed["votes"]), (&"admitted".into(), &true.into()));
    }

    cluster.node(0).freeze();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    drive(&client, |client| client.voters().count() == 2);
    lease.unlock().wait().unwrap();
    let node = client.nodes().wait().remove(0);
    assert!(client.is_ready() && node.state == NodeState::Stalled && !node.votes, "{node:?}");
    assert!(node.cause == Cause::Stalled && node.unanswered > 0 && !node.direct_wake, "{node:?}");

    let held = client.try_lock("held", TTL).wait().unwrap();
    cluster.node_mut(1).kill9();
    let is_away = |client: &Client| client.nodes().wait()[1].state == NodeState::Disconnected;
    drive(&client, |client| !client.is_ready() && is_away(client));
    let node = client.nodes().wait().remove(1);
    assert!(!node.votes && node.until.is_some(), "{node:?}");
    drop(held);
    assert!(client.nodes().wait()[1].debts > 0, "{:?}", client.nodes().wait());
    cluster.node(0).thaw();
    drive(&client, Client::is_ready);
    cluster.node_mut(1).restart();
    drive(&client, |client| client.voters().count() == 3);
}

#[test]
fn a_quarantine_says_how_long_it_still_is() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let config = cluster.config().restart_guard(RestartGuard::On);
    let mut driver = Driver::standalone(config).unwrap();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        driver.is_settled()
    }));
    assert!(!driver.is_ready());
    for node in driver.nodes() {
        let NodeState::Quarantined(left) = node.state else { panic!("{node:?}") };
        assert!(left <= ms(31_000) && node.until.is_some_and(|until| until <= left), "{node:?}");
        assert_eq!((node.state.name(), node.cause), ("quarantined", Cause::Quarantined));
    }
    driver.shutdown(PATIENCE);
}

#[test]
fn a_client_knows_by_itself_whether_it_is_ready() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(cluster.config().in_flight_max(1)).unwrap();
    assert!(shared.is_ready() && shared.quorum() == 2);
    assert!(eventually(PATIENCE, || shared.voters().count() == 3));
    // The client still answers with every place in use.
    let guard = shared.lock("k", TTL).wait().unwrap();
    assert!(shared.is_ready());
    drop(guard);
    (0..2).for_each(|index| cluster.node_mut(index).kill9());
    assert!(eventually(PATIENCE, || !shared.is_ready()), "{}", shared.voters().count());
    cluster.node_mut(0).restart();
    assert!(eventually(PATIENCE, || shared.is_ready()), "{}", shared.voters().count());
    shared.shutdown(PATIENCE).wait();
    assert!(!shared.is_ready());
}

#[test]
fn a_caller_that_opened_a_client_waits_until_a_quorum_may_vote() {
    use redbolt::{Client, ConnectError};

    let Some(mut cluster) = Cluster::mixed(3) else { return };
    (0..2).for_each(|index| cluster.node_mut(index).kill9());
    let shared = Client::open(cluster.config()).unwrap();
    // The node that is well has the time to say so.
    let error = shared.ready(ms(1_000)).wait().unwrap_err();
    assert!(error.to_string().contains("1 of 3 granted, 2 needed"), "{error}");

    // The client knows why two nodes are away, and the call goes on waiting: they may come back.
    let waits = || {
        let shared = shared.clone();
        std::thread::spawn(move || shared.ready(PATIENCE).wait())
    };
    let waiting = [waits(), waits()];
    let is_away = |node: &NodeHealth| node.cause == Cause::ConnectionRefused;
    assert!(eventually(PATIENCE, || shared
        .nodes()
        .wait()
        .iter()
        .filter(|node| is_away(node))
        .count()
        == 2));
    assert!(!waiting.iter().any(|thread| thread.is_finished()));
    cluster.node_mut(0).restart();
    for thread in waiting {
        thread.join().unwrap().expect("two of three vote");
    }
    assert!(shared.is_ready());
    shared.ready(ms(0)).wait().expect("it is ready already");

    shared.shutdown(PATIENCE).wait();
    assert!(matches!(shared.ready(PATIENCE).wait(), Err(ConnectError::System(_))));
}
