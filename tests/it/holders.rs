//! Who holds a lock: the client of its token, and what the nodes list of it.

use redbolt::inspect::{Holder, SeenLock, Verdict};
use redbolt::{Cause, Client, LockError, Shared};

use super::common::{
    Clients as _, Cluster, PATIENCE, TTL, available_kinds, ends_within, eventually, given_away, ms,
};

#[track_caller]
fn holder(seen: SeenLock) -> Holder {
    assert_eq!(seen.verdict, Verdict::Held, "{seen:?}");
    seen.holder.expect("a quorum holds one token")
}

/// Host, process id, program and address are those of this process.
#[track_caller]
fn is_here(holder: &Holder, program: &str) {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    assert_eq!(holder.host.as_deref(), Some(host.trim()), "{holder:?}");
    assert_eq!(holder.pid, Some(std::process::id()), "{holder:?}");
    assert_eq!(holder.program.as_deref(), Some(program), "{holder:?}");
    assert!(holder.address.as_ref().expect("an address").starts_with("127.0.0.1:"), "{holder:?}");
}

#[track_caller]
fn is_nobody(holder: &Holder) {
    let place = (&holder.host, holder.pid, &holder.program, &holder.address);
    assert_eq!(place, (&None, None, &None, &None), "{holder:?}");
}

#[test]
fn the_holder_is_found_by_every_handle_with_its_host_process_and_address() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let named = |name: &str| cluster.config().node_timeout(ms(2_000)).client_name(name);
    let mut client = cluster.whole(named("till-7"));
    let lease = client.try_lock("k", TTL).unwrap();
    let mut other = Client::connect(named("looker")).unwrap();
    let shared = Shared::connect(named("third")).unwrap();
    let lists = cluster.calls("client|list");
    let seen = [
        other.holder("k").unwrap(),
        shared.holder("k").unwrap(),
        smol::block_on(shared.holder_async("k")).unwrap(),
    ];
    assert_eq!(cluster.calls("client|list") - lists, 3, "one node is asked by each");
    for holder in seen.map(holder) {
        is_here(&holder, "till-7");
        assert_eq!(holder.token, lease.token());
        assert!(holder.votes >= 3 && holder.ends_in.unwrap() <= TTL, "{holder:?}");
        let client = holder.client.unwrap().to_string();
        assert!(lease.token().to_string().starts_with(&client));
        assert!(!format!("{holder:?}").contains(&lease.token().to_string()));
    }
    client.unlock(lease).unwrap();
    client.wait_released(PATIENCE);
    let free = other.holder("k").unwrap();
    assert_eq!((free.verdict, free.holder.is_none()), (Verdict::Free, true));
}

#[test]
fn a_holder_that_has_gone_is_known_by_its_client_alone() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let config = || cluster.config().node_timeout(ms(2_000));
    let mut gone = cluster.whole(config());
    let lease = gone.try_lock("k", TTL).unwrap();
    let (_, token) = given_away(&mut gone, lease);
    drop(gone);
    let mut client = Client::connect(config()).unwrap();
    let seen = |client: &mut Client| holder(client.holder("k").unwrap());
    // A server may still list a connection that was closed a moment ago.
    assert!(eventually(PATIENCE, || seen(&mut client).pid.is_none()));
    let holder = seen(&mut client);
    is_nobody(&holder);
    assert!(token.to_string().starts_with(&holder.client.unwrap().to_string()));
}

#[test]
fn a_user_who_may_not_list_clients_is_told_the_client_of_the_token() {
    for kind in available_kinds() {
        let Some(cluster) = Cluster::start(&[kind; 3], &[]) else { return };
        for node in cluster.nodes() {
            let line =
                ["ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-client|list"];
            assert_eq!(node.command(&line), b"+OK\r\n");
        }
        let config = cluster.config().node_timeout(ms(2_000)).username("blind").password("pw");
        let mut client = cluster.whole(config);
        let lease = client.try_lock("k", TTL).unwrap();
        let holder = holder(client.holder("k").unwrap());
        is_nobody(&holder);
        assert_eq!(holder.token, lease.token());
        assert!(holder.client.is_some());
    }
}

#[test]
fn a_token_of_another_library_has_no_client() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for node in cluster.nodes() {
        node.command(&["SET", "k", "8ae2-another-library", "PX", "30000"]);
    }
    let mut client = cluster.whole(cluster.config().node_timeout(ms(2_000)));
    let holder = holder(client.holder("k").unwrap());
    is_nobody(&holder);
    assert_eq!((holder.client, holder.token.as_bytes()), (None, &b"8ae2-another-library"[..]));
}

/// Each costs a node up to a kilobyte of its answer.
#[test]
fn a_list_of_some_thousand_clients_is_read_and_breaks_no_connection() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let config = cluster.config().node_timeout(ms(5_000)).client_name("among-many");
    let mut client = cluster.whole(config);
    let lease = client.try_lock("k", TTL).unwrap();
    let before: Vec<_> = client.nodes().into_iter().map(|node| node.until).collect();
    let node = cluster.node(0);
    let name = "x".repeat(2_000);
    let _crowd: Vec<_> = (0..800)
        .map(|_| {
            let mut wire = node.connect();
            assert_eq!(wire.ask(&["CLIENT", "SETNAME", &name]).unwrap(), b"+OK\r\n");
            wire
        })
        .collect();
    is_here(&holder(client.holder("k").unwrap()), "among-many");
    let after: Vec<_> = client.nodes().into_iter().map(|node| node.until).collect();
    assert_eq!(before, after);
    assert_eq!(client.driver().voters().count(), 3);
    assert!(lease.is_valid());
}

#[test]
fn locks_are_listed_with_their_holders_below_the_prefix_alone() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    // A prefix is no pattern, whatever is in it.
    let config = |prefix: &str| {
        cluster.config().node_timeout(ms(2_000)).client_name("lister").key_prefix(prefix)
    };
    let mut client = cluster.whole(config("a[*]:"));
    let mut other = cluster.whole(config("ax:"));
    let _lease = client.try_lock("k", TTL).unwrap();
    let _hidden = other.try_lock("k", TTL).unwrap();
    for node in cluster.nodes() {
        node.command(&["SET", "a[*]:k:fence", "1"]);
    }
    let shared = Shared::connect(config("a[*]:")).unwrap();
    for listing in [
        client.locks("*", 10).unwrap(),
        shared.locks("*", 10).unwrap(),
        smol::block_on(shared.locks_async("*", 10)).unwrap(),
    ] {
        assert!(listing.is_whole && listing.nodes.iter().all(|node| node.cause == Cause::None));
        assert!(cluster.nodes().zip(&listing.nodes).all(|(_, node)| node.node.starts_with("127.")));
        let [lock] = &listing.locks[..] else { panic!("{listing:?}") };
        assert_eq!(lock.key, b"k");
        is_here(lock.holder.as_ref().unwrap(), "lister");
    }
    assert!(matches!(shared.locks("", 1), Err(LockError::InvalidKey { .. })));
    let none = client.locks("*", 0).unwrap();
    assert!(none.locks.is_empty() && !none.is_whole, "{none:?}");
    assert!(matches!(client.locks("", 1), Err(LockError::InvalidKey { .. })));
}

#[test]
fn a_search_asks_a_node_that_hangs_once_and_goes_on_without_it() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.whole(cluster.config().node_timeout(ms(300)));
    let mut wires = [cluster.node(0).connect(), cluster.node(1).connect()];
    for wire in &mut wires {
        for index in 0..3_000 {
            assert_eq!(wire.ask(&["SET", &format!("k:{index}"), "token"]).unwrap(), b"+OK\r\n");
        }
    }
    cluster.node(2).freeze();
    // Far more steps than this leaves room for at a timeout each.
    let listing = ends_within(ms(6_000), || client.locks("k:*", 3_000)).unwrap();
    cluster.node(2).thaw();
    assert_eq!(listing.locks.len(), 3_000);
    assert!(listing.locks.iter().all(|lock| lock.verdict == Verdict::Held));
    let causes: Vec<bool> = listing.nodes.iter().map(|node| node.cause == Cause::None).collect();
    assert_eq!(causes, [true, true, false], "{:?}", listing.nodes);
}

#[test]
fn a_holder_that_reads_says_how_long_it_has_held_the_lock_and_how_many_wait() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let config = || cluster.config().node_timeout(ms(2_000));
    let [holding, waiting, asking] = [(); 3].map(|()| Shared::connect(config()).unwrap());
    let before = redbolt::now();
    let guard = holding.lock("k", TTL).unwrap();
    let first = holder(asking.holder("k").unwrap());
    assert_eq!(first.waiters, Some(0), "{first:?}");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.lock("k", TTL).map(drop));
        let mut seen = None;
        assert!(eventually(PATIENCE, || {
            let holder = holder(asking.holder("k").unwrap());
            seen = holder.held_for;
            holder.waiters == Some(1)
        }));
        let held = seen.unwrap();
        assert!(
            first.held_for.unwrap() <= held && held <= redbolt::now().saturating_since(before),
            "{held:?}"
        );
        drop(guard);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_holder_that_reads_nothing_leaves_it_unknown_after_a_node_timeout() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut silent = cluster.whole(cluster.config().client_name("silent"));
    let _lease = silent.try_lock("k", TTL).unwrap();
    let mut client = cluster.whole(cluster.config().node_timeout(ms(500)));
    let seen = ends_within(ms(3_000), || client.holder("k")).unwrap();
    let holder = holder(seen);
    is_here(&holder, "silent");
    assert_eq!((holder.held_for, holder.waiters), (None, None));
    // Without channels nobody is asked, and nothing is waited for.
    let timeout = ms(20_000);
    let config = cluster.config().node_timeout(timeout).direct_wake(false);
    let mut deaf = cluster.whole(config);
    let seen = ends_within(timeout, || deaf.holder("k")).unwrap();
    assert_eq!(seen.holder.unwrap().held_for, None);
}
