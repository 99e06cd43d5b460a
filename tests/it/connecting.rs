//! Connecting: a client is ready when a quorum of nodes is, and waits only briefly for the others.
//! It speaks to old servers as well as to new ones.

use std::net::TcpListener;
use std::time::Duration;

use redbolt::driver::Driver;
use redbolt::driver::mio::{Events, Poll};
use redbolt::inspect::NodeState;
use redbolt::{Cause, Client, Guard, Unlocked, driver::Outcome};
use redbolt_rig::uninterrupted;

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, TTL, available_kinds, causes, cycle, ends_within,
    eventually, fresh_config, given_away, ms, no_quorum, timed, wait_released,
};

#[test]
fn connecting_waits_for_a_hanging_minority_no_longer_than_the_node_timeout() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    cluster.node(1).freeze();
    cluster.node(4).freeze();
    let node_timeout = ms(1_000);
    let config = cluster.config().node_timeout(node_timeout);
    let client = ends_within(node_timeout, || Client::connect(config)).unwrap();
    cycle(&client, "k");
    // The frozen nodes may vote as soon as they answer.
    cluster.node(1).thaw();
    cluster.node(4).thaw();
    assert!(eventually(PATIENCE, || {
        cycle(&client, "k");
        client.nodes().wait().iter().all(|node| node.state == NodeState::Admitted)
    }));
}

#[test]
fn connecting_ends_at_the_connect_timeout_when_a_majority_hangs() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    cluster.node(0).freeze();
    // This port takes connections, but its owner never reads.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = format!("redis://{}", mute.local_addr().unwrap());
    let urls = vec![cluster.urls()[0].clone(), mute, cluster.urls()[2].clone()];
    for node_timeout in [ms(5), ms(50), ms(2_000)] {
        // The node that is well has the time to say so.
        let connect_timeout = ms(1_000);
        let config =
            fresh_config(urls.clone()).connect_timeout(connect_timeout).node_timeout(node_timeout);
        let (result, elapsed) = timed(|| ends_within(connect_timeout, || Client::connect(config)));
        let error = result.unwrap_err();
        assert!(elapsed >= connect_timeout, "{elapsed:?}");
        assert!(error.to_string().contains("1 of 3"), "{error}");
    }
    cluster.node(0).thaw();
}

/// A client without connections that holds a lock, and nodes that take new ones but hang in the
/// greeting.
fn hanging_in_the_greeting(
    cluster: &Cluster,
    connect_timeout: Duration,
    ttl: Duration,
) -> (Client, Guard) {
    let config = cluster.config().connect_timeout(connect_timeout).node_timeout(ms(100));
    let client = Client::connect(config).expect("fresh servers are admitted");
    // A busy machine may take longer than the node timeout.
    let mut lease = None;
    assert!(eventually(PATIENCE, || {
        lease = client.try_lock("held", ttl).wait().ok();
        lease.is_some()
    }));
    for node in cluster.nodes() {
        node.hang_up();
        node.freeze();
    }
    std::thread::sleep(ms(150));
    (client, lease.expect("the lock is free"))
}

#[test]
fn a_lock_on_nodes_that_hang_in_the_greeting_ends_at_the_connect_timeout() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (client, _lease) = hanging_in_the_greeting(&cluster, ms(500), ms(800));
    let ballot = ends_within(ms(500), || no_quorum(client.try_lock("k", TTL).wait()));
    assert!(causes(&ballot).iter().all(|cause| *cause != Cause::Stalled), "{ballot}");
    cluster.nodes().for_each(|node| node.thaw());
    assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
}

/// An extension is of no use after the end of its lease.
#[test]
fn an_extension_on_nodes_that_hang_in_the_greeting_ends_by_the_end_of_its_lease() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (client, mut lease) = hanging_in_the_greeting(&cluster, PATIENCE, ms(800));
    ends_within(ms(800), || lease.extend(ms(800)).wait()).unwrap_err();
    cluster.nodes().for_each(|node| node.thaw());
    assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
}

#[test]
fn an_unlock_on_nodes_that_hang_in_the_greeting_ends_in_its_time_and_is_paid_later() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (client, lease) = hanging_in_the_greeting(&cluster, PATIENCE, TTL);
    let (key, token) = given_away(lease);
    let unlocked = ends_within(ms(1_000), || client.unlock_token(&key, &token).wait()).unwrap();
    assert_eq!(unlocked, Unlocked::Unknown);
    cluster.nodes().for_each(|node| node.thaw());
    wait_released(&client, PATIENCE);
    assert!(eventually(PATIENCE, || cluster.holders("held") == 0));
    assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
}

/// `rename-command HELLO ""`: then there is no RESP3, and the client logs in and selects the
/// database by separate commands.
#[test]
fn a_server_without_hello_is_spoken_to_in_resp2() {
    for kind in available_kinds() {
        let args = ["--rename-command", "HELLO", "", "--requirepass", "secret"];
        let Some(cluster) = Cluster::start(&[kind], &args) else { return };
        let url = format!("{}/4", cluster.urls()[0]);
        let config = || fresh_config(vec![url.clone()]);
        let login = config().password("secret").client_name("old-school");
        let client = Client::connect(login).unwrap();
        for _ in 0..20 {
            cycle(&client, "k");
        }
        let health = &client.nodes().wait()[0];
        assert!(!health.resp3, "{health:?}");
        assert!(health.server.as_ref().is_some_and(|server| !server.is_empty()), "{health:?}");
        let mut wire = cluster.node(0).connect();
        assert_eq!(wire.ask(&["AUTH", "secret"]).unwrap(), b"+OK\r\n");
        let list = String::from_utf8(wire.ask(&["CLIENT", "LIST"]).unwrap()).unwrap();
        let line = list.lines().find(|line| line.contains(":old-school:l1.")).unwrap();
        assert!(line.contains(" db=4 "), "{line}");
        let error = Client::connect(config().password("wrong")).unwrap_err();
        assert!(error.to_string().contains(Cause::Credentials.text()), "{error}");
    }
}

#[test]
fn a_server_without_info_or_scripts_is_treated_as_one_that_denies_them() {
    for kind in available_kinds() {
        let args = ["--rename-command", "INFO", "", "--rename-command", "EVAL", ""];
        let Some(cluster) = Cluster::start(&[kind], &args) else { return };
        let error = Client::connect(cluster.config()).unwrap_err();
        assert!(error.to_string().contains(Cause::InfoDenied.text()), "{error}");
        let lenient = cluster.config().admission(redbolt::Admission::Lenient);
        let is_native = matches!(kind, Kind::Redis86 | Kind::Valkey91);
        if !is_native {
            let error = Client::connect(lenient).unwrap_err();
            assert!(error.to_string().contains(Cause::NoDialect.text()), "{error}");
            continue;
        }
        let client = Client::connect(lenient).unwrap();
        for _ in 0..20 {
            cycle(&client, "k");
        }
    }
}

/// The caller has its own loop and its own tokens, and two drivers in it.
#[test]
fn drivers_share_a_loop_that_is_somebody_elses() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(8);
    let config = || cluster.config();
    assert!(Driver::new(config(), poll.registry(), 0..3).is_err(), "one token too few");
    let mut drivers = [
        Driver::new(config(), poll.registry(), 10..14).unwrap(),
        Driver::new(config(), poll.registry(), 100..200).unwrap(),
    ];
    let mut open = Vec::new();
    for (at, driver) in drivers.iter_mut().enumerate() {
        for index in 0..50 {
            let id = driver.try_lock(format!("{at}:{index}"), TTL).unwrap();
            open.push((at, id));
        }
    }
    let mut leases = Vec::new();
    let end = redbolt::now() + PATIENCE;
    while !open.is_empty() {
        assert!(redbolt::now() < end, "{} are open", open.len());
        let mut timeout = PATIENCE;
        for (at, driver) in drivers.iter_mut().enumerate() {
            driver.drive();
            while let Some(done) = driver.completion() {
                let place = open.iter().position(|entry| *entry == (at, done.id)).unwrap();
                open.swap_remove(place);
                let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
                leases.push(result.unwrap());
            }
            timeout = timeout.min(driver.timeout().unwrap_or(PATIENCE));
        }
        if !open.is_empty() {
            uninterrupted(|| poll.poll(&mut events, Some(timeout))).unwrap();
        }
        for event in &events {
            let takers = drivers.iter_mut().filter_map(|driver| driver.ready(event).then_some(()));
            assert_eq!(takers.count(), 1, "{event:?}");
        }
    }
    assert_eq!(leases.len(), 100);
    drop(leases);
    assert!(drivers.iter_mut().all(|driver| driver.shutdown(PATIENCE) == 0));
    assert!(cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n"));
}

#[test]
fn a_client_that_was_opened_can_wait_until_a_quorum_votes() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let nowhere = "redis://127.0.0.1:1".to_owned();
    let mut urls = cluster.urls();
    urls.truncate(2);
    urls.push(nowhere.clone());
    let client = Client::open(fresh_config(urls)).unwrap();
    assert_eq!(client.quorum(), 2);
    client.ready(PATIENCE).wait().unwrap();
    assert!(client.is_ready() && client.voters().count() == 2);

    cluster.node(4).freeze();
    let urls = vec![cluster.urls()[3].clone(), cluster.urls()[4].clone(), nowhere];
    let client = Client::open(fresh_config(urls)).unwrap();
    // The node that is well has the time to say so.
    let error = ends_within(ms(1_000), || client.ready(ms(1_000)).wait()).unwrap_err();
    assert!(error.to_string().contains("1 of 3") && !client.is_ready(), "{error}");
}
