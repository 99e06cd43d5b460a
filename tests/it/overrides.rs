//! What one call may want otherwise than its configuration says.

use redbolt::{Cause, Client, LockOptions, Retry, Unlocked};

use super::common::{
    Clients as _, Cluster, PATIENCE, SLACK, TTL, causes, ends_within, eventually, ms, no_quorum,
};

/// Two nodes of three are silent: what ends the call is its own patience, not the configuration's.
#[test]
fn a_call_waits_for_silent_nodes_as_long_as_it_says() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    // The configuration's own, and what the others are told from by.
    let long = SLACK * 4;
    let mut client = Client::connect(cluster.config().node_timeout(long)).unwrap();
    (0..2).for_each(|index| cluster.node(index).freeze());
    let short = LockOptions::new(TTL).node_timeout(ms(50));
    let ballot = ends_within(ms(50), || no_quorum(client.try_lock("k", short)));
    assert_eq!(causes(&ballot)[..2], [Cause::Timeout; 2]);
    (0..2).for_each(|index| cluster.node(index).thaw());
    client.wait_released(PATIENCE);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));

    // And the other way round: nodes that answer late are waited for.
    let mut client = cluster.whole(cluster.config().node_timeout(ms(400)));
    (0..2).for_each(|index| cluster.node(index).freeze());
    let patient = LockOptions::new(TTL).node_timeout(PATIENCE);
    let lease = std::thread::scope(|scope| {
        let before = cluster.set_count(2);
        let call = scope.spawn(|| client.try_lock("k", patient));
        assert!(eventually(PATIENCE, || cluster.set_count(2) > before), "it has begun");
        // Far longer than the configuration waits, and longer than a stall takes to be noticed.
        assert!(!eventually(ms(1_500), || call.is_finished()), "it gave up");
        (0..2).for_each(|index| cluster.node(index).thaw());
        call.join().expect("no panic").expect("they answer late")
    });
    assert_eq!(client.unlock(lease).unwrap(), Unlocked::Released);
}

/// With nobody to tell it, a call that does without being woken looks again by its own delay.
#[test]
fn a_call_may_poll_instead_of_being_woken() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut holder = cluster.client();
    let lease = holder.try_lock("k", TTL).unwrap();
    let retry = Retry::every(ms(10), ms(10)).timeout(PATIENCE);
    let mut waiter = cluster.client();
    let acquire = LockOptions::new(TTL).retry(retry).direct_wake(false);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| waiter.lock("k", acquire).is_ok());
        assert!(eventually(PATIENCE, || cluster.set_count(0) > 5), "it does not poll");
        holder.unlock(lease).unwrap();
        assert!(call.join().unwrap());
    });
    for server in cluster.nodes() {
        let stats = server.command(&["INFO", "commandstats"]);
        assert!(!String::from_utf8_lossy(&stats).contains("cmdstat_publish"), "it told somebody");
    }
}
