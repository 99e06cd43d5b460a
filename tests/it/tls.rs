//! TLS: locks through it work as well as without, and the client names the node with any fault of
//! it.

use std::time::Duration;

use redbolt::driver::Driver;
use redbolt::{Cause, Client, Config, ConfigError, ConnectError, LockOptions, Tls, Unlocked};

use super::common::{
    Authority, Clients as _, Cluster, FOREIGN, Kind, LOCAL, PATIENCE, RealServer, Relay, Signed,
    TLS_KINDS, TTL, TlsServer, Trick, causes, cycle, ends_within, eventually, fresh_config,
    kind_or_skip, ms, wait_released,
};

/// Servers with TLS, one of each kind, that show certificates for this machine.
fn servers(authority: &Authority, args: &[&str]) -> Option<Vec<TlsServer>> {
    let shown = authority.issue(&LOCAL);
    TLS_KINDS.iter().map(|&kind| TlsServer::start(kind, authority, &shown, args)).collect()
}

fn config(urls: Vec<String>, authority: &Authority) -> Config {
    fresh_config(urls).tls(Tls::new().ca(authority.pem()))
}

fn urls(servers: &[TlsServer], host: &str) -> Vec<String> {
    servers.iter().map(|server| server.url(host)).collect()
}

/// Why the only node of this configuration does not vote.
#[track_caller]
fn refusal(config: Config) -> Cause {
    match ends_within(PATIENCE, || Client::connect(config)) {
        Err(ConnectError::NoQuorum(ballot)) => {
            let cause = *causes(&ballot).last().expect("a node");
            assert!(ballot.to_string().contains(cause.text()), "{ballot}");
            cause
        }
        Err(error) => panic!("{error}"),
        Ok(client) => panic!("connected: {:?}", client.nodes().wait()),
    }
}

#[test]
fn a_lock_through_tls_is_as_good_as_one_without() {
    let authority = Authority::new();
    let Some(servers) = servers(&authority, &["--requirepass", "secret"]) else { return };
    for host in ["127.0.0.1", "localhost"] {
        let config = || config(urls(&servers, host), &authority).password("secret");
        let client = Client::connect(config()).unwrap();
        for _ in 0..50 {
            cycle(&client, "k");
        }
        let kept = LockOptions::new(TTL).keep_alive();
        let mut lease = client.try_lock("k", kept).wait().unwrap();
        lease.extend(TTL).wait().unwrap();
        // A waiter is woken by messages through the same connections.
        let waiter = Client::connect(config()).unwrap();
        let taken = std::thread::scope(|scope| {
            let waits =
                scope.spawn(move || waiter.lock("k", TTL).wait().map(|lease| (waiter, lease)));
            std::thread::sleep(ms(200));
            assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
            assert!(eventually(PATIENCE, || {
                wait_released(&client, ms(1));
                waits.is_finished()
            }));
            waits.join().unwrap()
        });
        let (_waiter, lease) = taken.unwrap();
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        // Connections that are lost come back, by a handshake of their own.
        for server in &servers {
            let mut wire = server.server.connect();
            wire.ask(&["AUTH", "secret"]).unwrap();
            // A client that is gone leaves its channel when its nodes have answered.
            let mut channels = || {
                let list = wire.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]).unwrap();
                list.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"id=")).count()
            };
            assert!(eventually(PATIENCE, || channels() == 2), "two clients, each with its channel");
            let kill = ["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"];
            assert_eq!(wire.ask(&kill).unwrap(), b":2\r\n", "two clients, each with its channel");
        }
        assert!(eventually(PATIENCE, || {
            wait_released(&client, ms(10));
            client.try_lock("again", TTL).wait().is_ok() && client.voters().count() == 3
        }));
        for _ in 0..20 {
            cycle(&client, "k");
        }
    }
}

/// More bytes than a socket takes at once, to a server that does not read for a while.
#[test]
fn much_at_once_goes_through_tls_in_pieces_and_none_is_lost() {
    let authority = Authority::new();
    let Some(servers) = servers(&authority, &[]) else { return };
    let mut driver = Driver::standalone(config(urls(&servers, "127.0.0.1"), &authority)).unwrap();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        driver.voters().count() == 3
    }));
    servers[0].server.freeze();
    let long = "x".repeat(4_000);
    let keys: Vec<String> = (0..240).map(|index| format!("{index}:{long}")).collect();
    for key in &keys {
        driver.try_lock(key, TTL).unwrap();
    }
    let mut leases = Vec::new();
    let all_there = |driver: &mut Driver, leases: &mut Vec<_>| {
        eventually(PATIENCE, || {
            driver.drive();
            while let Some(done) = driver.completion() {
                let redbolt::driver::Outcome::Lock(result) = done.result else {
                    panic!("{done:?}")
                };
                leases.push(result.unwrap());
            }
            leases.len() == keys.len()
        })
    };
    assert!(all_there(&mut driver, &mut leases), "{}", leases.len());
    servers[0].server.thaw();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        leases.iter().all(|lease: &redbolt::Lease| lease.votes().count() == 3)
    }));
    drop(leases);
    driver.shutdown(PATIENCE);
    for server in &servers {
        assert!(eventually(PATIENCE, || server.server.command(&["DBSIZE"]) == b":0\r\n"));
    }
}

#[test]
fn answers_in_crumbs_are_put_together() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let authority = Authority::new();
    let shown = authority.issue(&LOCAL);
    let relays: Vec<_> =
        cluster.nodes().map(|node| Relay::start(node.port(), &shown, Trick::Crumbs)).collect();
    let urls = relays.iter().map(Relay::url).collect();
    let client = cluster.whole(config(urls, &authority));
    for _ in 0..5 {
        cycle(&client, "k");
    }
}

#[test]
fn the_name_of_the_host_is_asked_for_and_checked() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91], &[]) else { return };
    let authority = Authority::new();
    let relay = |names: &[&str]| {
        Relay::start(cluster.node(0).port(), &authority.issue(names), Trick::Honest)
    };
    let url = |relay: &Relay, host: &str| vec![relay.url().replace("127.0.0.1", host)];
    let by_name = relay(&["localhost"]);
    let connect = |urls| Client::connect(config(urls, &authority));
    cycle(&connect(url(&by_name, "localhost")).unwrap(), "k");
    assert_eq!(by_name.names(), ["localhost"]);
    assert_eq!(refusal(config(vec![by_name.url()], &authority)), Cause::CertificateName);

    let by_address = relay(&["127.0.0.1"]);
    cycle(&connect(vec![by_address.url()]).unwrap(), "k");
    assert!(by_address.names().is_empty(), "an address is no name to ask for");
    assert_eq!(refusal(config(url(&by_address, "localhost"), &authority)), Cause::CertificateName);

    let elsewhere = relay(&["locks.example"]);
    assert_eq!(refusal(config(vec![elsewhere.url()], &authority)), Cause::CertificateName);
    let tls = Tls::new().ca(authority.pem()).server_name("locks.example");
    cycle(&Client::connect(fresh_config(vec![elsewhere.url()]).tls(tls)).unwrap(), "k");
    assert_eq!(elsewhere.names().last().map(String::as_str), Some("locks.example"));
}

#[test]
fn a_client_that_reconnects_resumes_its_session_and_another_client_begins_one() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91], &[]) else { return };
    let authority = Authority::new();
    let shown = authority.issue(&LOCAL);
    let relay = Relay::start(cluster.node(0).port(), &shown, Trick::Honest);
    let connect = || Client::connect(config(vec![relay.url()], &authority)).unwrap();
    let client = connect();
    cycle(&client, "k");
    assert_eq!(relay.resumed(), [false], "there is nothing to resume yet");
    cluster.node(0).hang_up();
    let is_back = eventually(PATIENCE, || {
        wait_released(&client, ms(10));
        relay.resumed().len() > 1 && client.try_lock("k", TTL).wait().is_ok()
    });
    let resumed = relay.resumed();
    assert!(is_back && resumed.iter().skip(1).all(|it| *it), "{resumed:?}");
    let _other = connect();
    let begun = relay.resumed().into_iter().filter(|it| !*it).count();
    assert_eq!(begun, 2, "a client resumes none but its own sessions");
}

/// One node with a fault of each kind, on each server that can have it.
#[test]
fn what_is_wrong_with_a_certificate_is_said_of_the_node() {
    let authority = Authority::new();
    for kind in TLS_KINDS {
        let start = |shown: &Signed, args: &[&str]| TlsServer::start(kind, &authority, shown, args);
        let good = authority.issue(&LOCAL);
        let with =
            |server: &TlsServer, tls: Tls| fresh_config(vec![server.url("127.0.0.1")]).tls(tls);
        let trusting = || Tls::new().ca(authority.pem());

        let Some(server) = start(&good, &[]) else { continue };
        let stranger = Authority::new();
        assert_eq!(
            refusal(with(&server, Tls::new().ca(stranger.pem()))),
            Cause::CertificateUntrusted
        );
        // TLS to a plain port, where Redis and Valkey keep silent; and plain bytes to the TLS port.
        let to_plain = vec![format!("rediss://127.0.0.1:{}", server.server.port())];
        let hasty = fresh_config(to_plain).tls(trusting()).connect_timeout(ms(300));
        assert_eq!(refusal(hasty), Cause::TlsTimeout);
        let plainly = fresh_config(vec![format!("redis://127.0.0.1:{}", server.port)]);
        assert_eq!(refusal(plainly), Cause::TlsWanted, "{}", kind.name());

        for years in [2020..2021, 2040..2050] {
            let server = start(&authority.issue_for_years(&LOCAL, years), &[]).unwrap();
            assert_eq!(refusal(with(&server, trusting())), Cause::CertificateExpired);
        }

        for protocols in ["TLSv1.2", "TLSv1.3"] {
            let args = ["--tls-auth-clients", "yes", "--tls-protocols", protocols];
            let server = start(&good, &args).unwrap();
            let refused = refusal(with(&server, trusting()));
            // TLS 1.2 has no alert of its own for this fault.
            let is_named = refused == Cause::ClientCertificate;
            assert!(
                is_named || (protocols == "TLSv1.2" && refused == Cause::TlsFailed),
                "{refused}"
            );
            let known = authority.issue(&["a client"]);
            let identity = |me: &Signed| trusting().identity(me.cert.as_str(), me.key.as_str());
            cycle(&Client::connect(with(&server, identity(&known))).unwrap(), "k");
            let unknown = stranger.issue(&["a client"]);
            let refused = refusal(with(&server, identity(&unknown)));
            assert_eq!(refused, Cause::ClientCertificate, "{} {protocols}", kind.name());
            let old = authority.issue_for_years(&["a client"], 2020..2021);
            let refused = refusal(with(&server, identity(&old)));
            assert_eq!(refused, Cause::ClientCertificate, "{} {protocols}", kind.name());
        }

        let args = ["--tls-protocols", "TLSv1.2", "--tls-ciphers", "AES128-SHA"];
        let server = start(&good, &args).unwrap();
        assert_eq!(refusal(with(&server, trusting())), Cause::TlsFailed);
    }
}

/// A node whose certificate is wrong is no obstacle, and votes again once the certificate is
/// mended.
#[test]
fn a_node_with_a_bad_certificate_is_an_absent_node_and_told_once() {
    let authority = Authority::new();
    let good = authority.issue(&LOCAL);
    let Some(mut servers) = servers(&authority, &[]) else { return };
    let old = authority.issue_for_years(&LOCAL, 2020..2021);
    let kind = servers[2].server.kind();
    servers[2] = TlsServer::start(kind, &authority, &old, &[]).unwrap();
    let client = Client::connect(config(urls(&servers, "127.0.0.1"), &authority)).unwrap();
    for _ in 0..20 {
        ends_within(Duration::ZERO, || cycle(&client, "k"));
    }
    let notices: Vec<_> = client.notices().wait().into_iter().map(|told| told.cause).collect();
    assert_eq!(notices, [Cause::CertificateExpired]);
    // Certificate and key at once: the server refuses a certificate without its key.
    let (cert, key) = (good.cert_file.display().to_string(), good.key_file.display().to_string());
    let set = ["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key];
    assert_eq!(servers[2].server.command(&set), b"+OK\r\n");
    assert!(eventually(PATIENCE, || {
        cycle(&client, "k");
        client.voters().count() == 3
    }));
    assert!(client.notices().wait().iter().any(|told| told.is_well()));
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_refused_by_their_role() {
    let authority = Authority::new();
    let me = authority.issue(&["me"]);
    let other = authority.issue(&["other"]);
    let refused = |urls: &[&str], tls: Tls| {
        let config = Config::new(urls).unwrap().tls(tls);
        match Client::open(config) {
            Err(ConnectError::Config(error)) => error.to_string(),
            result => panic!("{result:?}"),
        }
    };
    let secure = ["rediss://127.0.0.1:1"];
    let trusting = || Tls::new().ca(authority.pem());
    let encrypted = me.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let damaged = authority.pem().replacen("MII", "M*I", 1);
    let table = [
        (Tls::new().ca(""), "CA certificate: it holds no certificate"),
        (Tls::new().ca(me.key.as_str()), "CA certificate: it holds no certificate"),
        (Tls::new().ca(damaged), "CA certificate: its PEM is damaged"),
        (trusting().identity("", me.key.as_str()), "client certificate: it holds no"),
        (trusting().identity(me.cert.as_str(), "x"), "client key: it holds no private key"),
        (trusting().identity(me.cert.as_str(), encrypted), "client key: it has a passphrase"),
        (trusting().identity(me.cert.as_str(), other.key), "client key: it is not the key of"),
        (trusting().server_name("no name"), "server name"),
    ];
    for (tls, part) in table {
        let error = refused(&secure, tls);
        assert!(error.contains(part) && !error.contains("MII"), "{error}");
    }
    let error = refused(&["redis://h:1", "unix:///s"], trusting());
    assert_eq!(error, ConfigError::TlsUnused.to_string());
}

/// An address without a scheme uses TLS as the configuration says; `redis://` is always plain.
#[test]
fn a_bare_address_goes_through_tls_where_tls_is_configured() {
    let authority = Authority::new();
    let Some(servers) = servers(&authority, &[]) else { return };
    let bare: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    cycle(&Client::connect(config(bare.clone(), &authority)).unwrap(), "k");
    assert_eq!(refusal(fresh_config(bare)), Cause::TlsWanted);
    // A set of nodes on its way to TLS.
    let mut mixed = urls(&servers, "localhost");
    mixed[1] = servers[1].server.url();
    mixed[2] = servers[2].server.unix_url();
    let client = Client::connect(config(mixed, &authority)).unwrap();
    cycle(&client, "k");
    assert_eq!(client.voters().count(), 3);
}

/// Two honest nodes and one with each trick: the client gets locks at once, and counts the node as
/// away.
#[test]
fn whatever_a_tls_server_does_the_other_nodes_are_not_delayed() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let authority = Authority::new();
    let shown = authority.issue(&LOCAL);
    let before_greeting = [
        (Trick::Silence, &[Cause::TlsTimeout][..]),
        (Trick::SlowHandshake, &[Cause::TlsTimeout]),
        (Trick::PlainAnswer, &[Cause::NoTls]),
        (Trick::CloseInHandshake, &[Cause::Closed]),
        (Trick::EndlessHandshake, &[Cause::TlsFailed]),
        (Trick::PlainAfterwards, &[Cause::TlsFailed]),
        (Trick::HugeRecord, &[Cause::TlsFailed]),
        (Trick::Forged, &[Cause::TlsFailed]),
        (Trick::KeyUpdates, &[Cause::ConnectTimeout, Cause::TlsFailed]),
        (Trick::Goodbye, &[Cause::Closed]),
        (Trick::Cut, &[Cause::Closed]),
    ];
    for (trick, expected) in before_greeting {
        let relay = Relay::start(cluster.node(2).port(), &shown, trick);
        let mut urls = cluster.urls();
        urls[2] = relay.url();
        let config = || {
            let config = config(urls.clone(), &authority);
            config.connect_timeout(ms(700)).node_timeout(ms(4_000))
        };
        drop(ends_within(ms(700), || Client::connect(config())).unwrap());
        // The client also gets locks while the node is still in its handshake.
        let client = Client::open(config()).unwrap();
        assert!(eventually(PATIENCE, || { client.is_ready() }));
        let is_known = eventually(PATIENCE, || {
            ends_within(Duration::ZERO, || cycle(&client, "k"));
            expected.contains(&client.nodes().wait()[2].cause)
        });
        assert!(is_known, "{trick:?}: {:?}", client.nodes().wait()[2]);
        assert!(relay.connections() > 0);
        // The relay mends its ways.
        relay.play(Trick::Honest);
        let is_back = eventually(PATIENCE, || {
            cycle(&client, "k");
            client.voters().count() == 3
        });
        assert!(is_back, "{trick:?}: {:?}", client.nodes().wait()[2]);
    }
}

/// The vote of a node that breaks TLS under a request is unknown. The client deletes the key that
/// the node may have written when the node is back.
#[test]
fn a_vote_behind_broken_tls_is_unknown_and_its_key_is_deleted_later() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let authority = Authority::new();
    let shown = authority.issue(&LOCAL);
    let relay = |index: usize| Relay::start(cluster.node(index).port(), &shown, Trick::Honest);
    let relays = [relay(0), relay(1), relay(2)];
    let tricks = [
        Trick::PlainAfterwards,
        Trick::HugeRecord,
        Trick::Forged,
        Trick::KeyUpdates,
        Trick::Goodbye,
        Trick::Cut,
    ];
    let urls = || relays.iter().map(Relay::url).collect();
    for trick in tricks {
        let config = config(urls(), &authority).node_timeout(ms(300)).connect_timeout(ms(2_000));
        let client = Client::connect(config).unwrap();
        assert!(eventually(PATIENCE, || client.voters().count() == 3));
        relays[0].play(trick);
        relays[1].play(trick);
        let error = ends_within(ms(300), || client.try_lock("k", TTL).wait()).unwrap_err();
        let redbolt::LockError::NoQuorum(ballot) = error else { panic!("{trick:?}: {error}") };
        for (name, vote) in ballot.votes().take(2) {
            assert!(matches!(vote, redbolt::Vote::Unknown(_)), "{trick:?}: {name}: {vote:?}");
        }
        relays.iter().for_each(|relay| relay.play(Trick::Honest));
        let is_back = eventually(PATIENCE, || {
            wait_released(&client, ms(20));
            client.voters().count() == 3 && cluster.holders("k") == 0
        });
        assert!(is_back, "{trick:?}: {:?} {:?}", client.nodes().wait(), cluster.values("k"));
        cluster.occupy(0, "k");
        assert_eq!(cluster.values("k")[0].as_deref(), Some(FOREIGN.as_bytes()));
        cluster.node(0).command(&["DEL", "k"]);
    }
}

#[test]
fn an_address_of_ipv6_is_as_good_as_any() {
    for (kind, secure) in [(Kind::Valkey81, true), (Kind::Redis70, true), (Kind::Valkey91, false)] {
        if std::net::TcpListener::bind("[::1]:0").is_err() || kind_or_skip(kind).is_none() {
            return;
        }
        let authority = Authority::new();
        let bind = ["--bind", "127.0.0.1", "::1"];
        if secure {
            let shown = authority.issue(&LOCAL);
            let server = TlsServer::start(kind, &authority, &shown, &bind).unwrap();
            let client = Client::connect(config(vec![server.url("[::1]")], &authority)).unwrap();
            cycle(&client, "k");
        }
        let server = RealServer::start(kind, &bind);
        let url = format!("redis://[::1]:{}/2", server.port());
        let client = Client::connect(fresh_config(vec![url])).unwrap();
        cycle(&client, "k");
        assert_eq!(client.nodes().wait()[0].name, format!("[::1]:{}", server.port()));
    }
}
