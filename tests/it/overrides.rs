//! Options of one call that differ from its configuration.

use redbolt::{LockOptions, Retry};

use super::common::{Clients as _, Cluster, PATIENCE, TTL, eventually, ms};

/// The call does without being woken, so it looks again after its own delay.
#[test]
fn a_call_may_poll_instead_of_being_woken() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let holder = cluster.client();
    let lease = holder.try_lock("k", TTL).wait().unwrap();
    let retry = Retry::every(ms(10), ms(10)).timeout(PATIENCE);
    let waiter = cluster.client();
    let acquire = LockOptions::new(TTL).retry(retry).direct_wake(false);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| waiter.lock("k", acquire).wait().is_ok());
        assert!(eventually(PATIENCE, || cluster.set_count(0) > 5), "it does not poll");
        lease.unlock().wait().unwrap();
        assert!(call.join().unwrap());
    });
    for server in cluster.nodes() {
        let stats = server.command(&["INFO", "commandstats"]);
        assert!(!String::from_utf8_lossy(&stats).contains("cmdstat_publish"), "it told somebody");
    }
}
