//! Acquisition: a quorum of free nodes gives the lock to one client only. A failure names its cause
//! and leaves no key.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use redbolt::{
    Cause, Client, Config, ConfigError, IdleStrategy, LockError, LockOptions, Quorum, Unlocked,
    Vote,
};

use super::common::{
    Clients as _, Cluster, FOREIGN, PATIENCE, TTL, ends_within, eventually, fresh_config, ms,
    no_quorum, taken, wait_released,
};

#[test]
fn a_lock_stores_the_same_token_on_every_node_with_its_ttl() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    let token = lease.token().unwrap().as_bytes().to_vec();
    assert_eq!(token.len(), 40);
    assert!(token.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    assert_eq!(lease.key(), b"k");
    // The third node may still be writing the key when the first two have decided.
    assert!(eventually(PATIENCE, || cluster.holders("k") == 3));
    assert_eq!(cluster.values("k"), vec![Some(token); 3]);
    let ttl_ms = i64::try_from(TTL.as_millis()).unwrap();
    for node in cluster.nodes() {
        assert!((1..=ttl_ms).contains(&node.pttl("k")));
    }
}

#[test]
fn a_held_key_is_reported_as_taken_with_every_node_that_holds_it() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (holder, other) = (cluster.client(), cluster.client());
    let lease = holder.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 3));

    let error = other.try_lock("k", TTL).wait().unwrap_err();
    let text = error.to_string();
    let ballot = taken(Err::<(), _>(error));
    assert_eq!((ballot.granted(), ballot.quorum()), (0, 2));
    assert!(ballot.denied() >= 2, "two denials decide: {ballot}");
    for ((name, vote), url) in ballot.votes().zip(cluster.urls()) {
        assert!(url.ends_with(name), "{name} is {url}");
        if vote == Vote::Denied {
            assert!(text.contains(name) && text.contains(Cause::Held.text()), "{text}");
        }
    }
    assert!(
        !text.contains(&lease.token().unwrap().to_string()),
        "a token is nobody else's business"
    );
    assert!(lease.is_valid());
}

/// The holder is no exception: the nodes refuse a client's second lease of one key like any other.
#[test]
fn a_client_cannot_take_a_lock_that_it_holds() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    taken(client.try_lock("k", TTL).wait());
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    let again = client.try_lock("k", TTL).wait().unwrap();
    assert_eq!(again.unlock().wait().unwrap(), Unlocked::Released);
}

#[test]
fn an_unlocked_key_can_be_locked_again_at_once() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let (mut one, mut other) = (cluster.client(), cluster.client());
    let mut last = None;
    for _ in 0..100 {
        for client in [&mut one, &mut other] {
            // The other client's release may still be on its way to a node that its quorum did not
            // need. Three nodes of five are enough all the same.
            let lease = client.try_lock("k", TTL).wait().unwrap();
            assert_ne!(
                last.replace(lease.token().unwrap()),
                Some(lease.token().unwrap()),
                "a token is used once"
            );
            assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        }
    }
}

#[test]
fn locks_on_different_keys_do_not_disturb_one_another() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let keys = ["a", "b", "ab", "a:b", "A"];
    let mut leases: Vec<_> =
        keys.iter().map(|key| client.try_lock(key, TTL).wait().unwrap()).collect();
    let odd = leases.swap_remove(2);
    assert_eq!(odd.unlock().wait().unwrap(), Unlocked::Released);
    assert!(eventually(PATIENCE, || cluster.holders("ab") == 0));
    for lease in leases {
        let key = String::from_utf8(lease.key().to_vec()).unwrap();
        assert!(eventually(PATIENCE, || cluster.holders(&key) == 3), "{key}");
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released, "{key}");
    }
}

#[test]
fn of_any_number_of_contenders_at_most_one_wins() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let mut clients: Vec<_> = (0..10).map(|_| cluster.client()).collect();
    for contenders in 1..=clients.len() {
        let field = &mut clients[..contenders];
        let mut won = 0;
        for round in 0..15 {
            let key = format!("{contenders}:{round}");
            let start = Barrier::new(contenders);
            let contend = |client: &Client| {
                start.wait();
                client.try_lock(&key, TTL).wait()
            };
            let results: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> =
                    field.iter_mut().map(|client| scope.spawn(|| contend(client))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let leases = results.iter().filter(|result| result.is_ok()).count();
            assert!(leases <= 1, "{leases} of {contenders} hold {key}");
            for error in results.iter().filter_map(|result| result.as_ref().err()) {
                assert!(matches!(error, LockError::Taken(_)), "{error}");
            }
            won += leases;
        }
        assert!(contenders > 1 || won == 15, "nobody stood in its way");
    }
    drop(clients);
    assert!(eventually(PATIENCE, || {
        cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n")
    }));
}

/// Every mask of foreign keys on one to five nodes: the free nodes decide, and a failed attempt
/// takes its own keys back.
#[test]
fn a_lock_is_won_exactly_where_a_quorum_of_nodes_is_free() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for count in 1..=cluster.len() {
        let urls = cluster.urls().into_iter().take(count).collect();
        let client = Client::connect(fresh_config(urls)).unwrap();
        for mask in 0..1_usize << count {
            let key = format!("{count}:{mask:05b}");
            let is_foreign = |index: usize| mask >> index & 1 == 1;
            for index in (0..count).filter(|&index| is_foreign(index)) {
                cluster.occupy(index, &key);
            }
            let free = count - mask.count_ones() as usize;
            match client.try_lock(&key, TTL).wait() {
                Ok(lease) => {
                    assert!(free > count / 2, "{key}");
                    assert!(lease.votes().count() as usize <= free, "{key}");
                    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released, "{key}");
                }
                Err(error) => {
                    assert!(free <= count / 2, "{key}: {error}");
                    taken(Err::<(), _>(error));
                }
            }
            let expected: Vec<_> = (0..5)
                .map(|index| (index < count && is_foreign(index)).then(|| FOREIGN.into()))
                .collect();
            assert!(eventually(PATIENCE, || cluster.values(&key) == expected), "{key}");
        }
    }
}

/// One vote fewer than the quorum fails, as many succeed: 1, 2, 2, 3, 3, 4, 4 of 1 to 7 nodes.
#[test]
fn the_quorum_of_one_to_seven_nodes_is_more_than_half() {
    let Some(cluster) = Cluster::mixed(7) else { return };
    for (count, quorum) in (1..=7).zip([1, 2, 2, 3, 3, 4, 4]) {
        let urls: Vec<_> = cluster.urls().into_iter().take(count).collect();
        let client = Client::connect(fresh_config(urls.clone())).unwrap();
        assert_eq!(client.quorum(), quorum);
        for free in [quorum, quorum - 1] {
            let key = format!("{count}:{free}");
            for index in free as usize..count {
                cluster.occupy(index, &key);
            }
            let result = client.try_lock(&key, TTL).wait();
            assert_eq!(result.is_ok(), free == quorum, "{key}: {result:?}");
        }
        let all = fresh_config(urls).quorum(Quorum::AtLeast(count));
        let strict = Client::connect(all).unwrap();
        cluster.occupy(count - 1, "all");
        taken(strict.try_lock("all", TTL).wait());
        cluster.node(count - 1).command(&["DEL", "all"]);
        let lease = strict.lock("all", TTL).wait().unwrap();
        assert_eq!(lease.votes().count() as usize, count);
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    }
}

/// The quorum is two of two, so one denial ends the attempt: the client does not wait for
/// `node_timeout`.
#[test]
fn an_even_split_ends_at_once() {
    let Some(cluster) = Cluster::mixed(4) else { return };
    for count in [2, 4] {
        let urls = cluster.urls().into_iter().take(count).collect();
        let patient = fresh_config(urls).node_timeout(Duration::from_secs(60));
        let client = Client::connect(patient).unwrap();
        let key = format!("split:{count}");
        for index in 0..count / 2 {
            cluster.occupy(index, &key);
        }
        let ballot = ends_within(Duration::ZERO, || taken(client.try_lock(&key, TTL).wait()));
        assert_eq!(ballot.denied() as usize, count / 2);
        assert!(eventually(PATIENCE, || cluster.holders(&key) == count / 2));
    }
}

#[test]
fn impossible_configurations_are_refused_with_a_typed_error() {
    let three = || Config::new(["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]).unwrap();
    assert_eq!(Config::new([""; 0]).unwrap_err(), ConfigError::NoNodes);
    assert!(matches!(
        Config::new(["redis://h:1/0", "h:1"]).unwrap_err(),
        ConfigError::DuplicateNode { node } if node == "h:1"
    ));
    for url in ["", "h:0", "h:70000", "http://h:1", "redis://u:secret@", "unix://relative"] {
        let error = Config::new([url]).unwrap_err();
        assert!(matches!(error, ConfigError::Address { .. }), "{url}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    for votes in [0, 1, 4] {
        let error = Client::open(three().quorum(Quorum::AtLeast(votes))).unwrap_err();
        assert!(error.to_string().contains("quorum"), "{error}");
    }
    let odd = [
        three().max_ttl(ms(3)),
        three().node_timeout(Duration::ZERO),
        three().connect_timeout(Duration::ZERO),
        three().drift_factor(-0.1),
        three().in_flight_max(0),
        three().client_name("two words"),
    ];
    for config in odd {
        let error = Client::open(config).unwrap_err();
        assert!(matches!(error, redbolt::ConnectError::Config(_)), "{error}");
    }
}

#[test]
fn keys_and_ttls_out_of_range_are_refused_and_nothing_is_written() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let max_ttl = Duration::from_secs(5);
    let client = Client::connect(cluster.config().max_ttl(max_ttl)).unwrap();
    let over = max_ttl + ms(1);
    for ttl in [Duration::ZERO, Duration::from_micros(999), ms(1), ms(3), over, Duration::MAX] {
        let error = client.try_lock("k", ttl).wait().unwrap_err();
        let LockError::InvalidTtl { ttl: asked, least, most } = error else { panic!("{error}") };
        assert_eq!((asked, least, most), (ttl, ms(4), max_ttl));
    }
    for key in [vec![], vec![b'k'; 4097]] {
        let error = client.try_lock(&key, TTL.min(max_ttl)).wait().unwrap_err();
        let LockError::InvalidKey { len } = error else { panic!("{error}") };
        assert_eq!(len, key.len());
    }
    for index in 0..cluster.len() {
        assert_eq!(cluster.set_count(index), 0);
    }
    let lease = client.try_lock(vec![b'k'; 4096], max_ttl).wait().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
}

/// Four milliseconds less three of drift leave one, so the lease may be over before the call is.
/// The client never hands out a lease late, and leaves no key.
#[test]
fn a_ttl_of_four_milliseconds_is_legal() {
    let Some(cluster) = Cluster::mixed(1) else { return };
    let client = cluster.client();
    for _ in 0..50 {
        match client.try_lock("k", ms(4)).wait() {
            Ok(lease) => {
                assert!(lease.remaining() <= ms(1));
                assert_ne!(lease.unlock().wait(), Ok(Unlocked::Unknown));
            }
            Err(error) => assert!(matches!(error, LockError::Expired(_)), "{error}"),
        }
    }
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
}

/// `deadline = t0 + ttl - ceil(ttl / 100) - 2 ms`, and `t0` lies before the call returned.
#[test]
fn the_validity_is_below_the_ttl_less_drift_and_above_zero() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    for (ttl, drift) in [(ms(20_000), ms(202)), (ms(10_050), ms(103)), (ms(3_000), ms(32))] {
        let before = redbolt::now();
        let lease = client.try_lock("k", ttl).wait().unwrap();
        let after = redbolt::now();
        assert!(lease.deadline() >= before + (ttl - drift));
        assert!(lease.deadline() <= after + (ttl - drift));
        assert!(lease.remaining() < ttl - drift);
        assert!(!lease.remaining().is_zero() && lease.is_valid());
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    }
}

#[test]
fn a_validity_that_cannot_be_met_is_expired_and_leaves_no_key() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let error = client.try_lock("k", LockOptions::new(TTL).min_validity(TTL)).wait().unwrap_err();
    let LockError::Expired(ballot) = error else { panic!("{error}") };
    assert!(ballot.granted() >= 2, "{ballot}");
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
    let lease = client.try_lock("k", LockOptions::new(TTL).min_validity(TTL / 2)).wait().unwrap();
    assert!(lease.remaining() > TTL / 2);
}

#[test]
fn an_expired_lock_is_free_for_another_client() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (holder, other) = (cluster.client(), cluster.client());
    let ttl = ms(1_000);
    let lease = holder.try_lock("k", ttl).wait().unwrap();
    let won = eventually(PATIENCE, || {
        let lease = other.try_lock("k", TTL).wait();
        if let Err(error) = &lease {
            assert!(matches!(error, LockError::Taken(_)), "{error}");
        }
        lease.is_ok()
    });
    assert!(won);
    assert!(!lease.is_valid(), "two clients hold one lock");
    assert_eq!(lease.remaining(), Duration::ZERO);
}

#[test]
fn keys_may_hold_any_bytes() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = cluster.client();
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let long = [&every_byte[..], b"\r\n$3\r\nDEL\r\n"].concat().repeat(15);
    let strings: [&[u8]; 6] =
        [b"a b", b"\0", b"\r\n", b"*1\r\n$8\r\nFLUSHALL\r\n", &every_byte[1..], &long];
    for key in strings {
        let lease = client.try_lock(key, TTL).wait().unwrap();
        assert_eq!(lease.key(), key);
        let value = format!("$40\r\n{}\r\n", lease.token().unwrap()).into_bytes();
        for node in cluster.nodes() {
            let holds = || node.command(&[b"GET", key]) == value;
            assert!(eventually(PATIENCE, holds), "{}", key.escape_ascii());
        }
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    }
}

#[test]
fn every_way_of_waiting_gives_the_same_results() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for wait in [
        IdleStrategy::Park,
        IdleStrategy::Spin,
        IdleStrategy::SpinThenPark(Duration::from_micros(20)),
    ] {
        let client = Client::connect(cluster.config().idle_strategy(wait)).unwrap();
        for _ in 0..50 {
            let mut lease = client.try_lock("k", TTL).wait().unwrap();
            taken(client.try_lock("k", TTL).wait());
            lease.extend(TTL).wait().unwrap();
            assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        }
        cluster.node(0).freeze();
        cluster.node(1).freeze();
        ends_within(TTL, || no_quorum(client.try_lock("k", TTL).wait()));
        cluster.node(0).thaw();
        cluster.node(1).thaw();
        assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
        wait_released(&client, PATIENCE);
        assert_eq!(cluster.holders("k"), 0);
    }
}
