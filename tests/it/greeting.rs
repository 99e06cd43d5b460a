//! Greeting: which nodes may vote. Every objection to a node comes with its name and a text on
//! which a reader can act.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::inspect::{NodeHealth, NodeState};
use redbolt::{
    Admission, Ballot, Cause, Client, Config, ConnectError, LockOptions, RestartGuard, Unlocked,
};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, RealServer, TTL, Wire, available_kinds, causes, cycle,
    ends_within, eventually, fresh_config, given_away, ms, no_quorum, settled_nodes, wait_released,
};

/// The newest and the oldest server, whose greetings differ enough.
fn pair(args: &[&str]) -> Option<Cluster> {
    Cluster::start(&[Kind::Valkey91, Kind::Redis70], args)
}

/// The ballot with which a client of this configuration fails to connect.
#[track_caller]
fn refusal(config: Config) -> Ballot {
    match ends_within(PATIENCE, || Client::connect(config)) {
        Err(ConnectError::NoQuorum(ballot)) => ballot,
        Err(error) => panic!("{error}"),
        Ok(client) => panic!("connected: {:?}", client.nodes().wait()),
    }
}

/// The text for each cause follows the node's name, in one line.
#[track_caller]
fn check_words(ballot: &Ballot, expected: &[Cause]) {
    assert_eq!(causes(ballot), expected, "{ballot}");
    let error = ConnectError::NoQuorum(ballot.clone()).to_string();
    for ((name, _), cause) in ballot.votes().zip(expected) {
        assert!(*cause == Cause::None || error.contains(&format!("{name}: {cause}")), "{error}");
    }
    assert!(!error.contains('\n'), "{error}");
}

fn with_login(url: &str, login: &str) -> String {
    url.replace("redis://", &format!("redis://{login}@"))
}

#[test]
fn a_password_in_the_url_or_the_configuration_logs_in() {
    let Some(cluster) = pair(&["--requirepass", "pass word/@:%"]) else { return };
    let login = |url: String| with_login(&url, ":pass%20word%2F%40%3A%25");
    let urls: Vec<_> = cluster.urls().into_iter().map(login).collect();
    cycle(&Client::connect(fresh_config(urls.clone())).unwrap(), "k");
    cycle(&Client::connect(cluster.config().password("pass word/@:%")).unwrap(), "k");
    let named = cluster.config().username("default").password("pass word/@:%");
    cycle(&Client::connect(named).unwrap(), "k");
    // The login in a URL is for its node, whatever the configuration says for the others.
    let mixed = vec![urls[0].clone(), cluster.urls()[1].clone()];
    cycle(&Client::connect(fresh_config(mixed).password("pass word/@:%")).unwrap(), "k");
    let wrong = fresh_config(urls).password("wrong");
    cycle(&Client::connect(wrong).unwrap(), "k");
}

#[test]
fn a_wrong_or_missing_password_is_an_error_that_names_the_node_and_not_the_password() {
    let Some(cluster) = pair(&["--requirepass", "right"]) else { return };
    for config in [
        cluster.config(),
        cluster.config().password("s3cr3t"),
        cluster.config().username("nobody").password("s3cr3t"),
    ] {
        let ballot = refusal(config);
        check_words(&ballot, &[Cause::Credentials; 2]);
        assert!(
            !ballot.to_string().contains("s3cr3t") && !format!("{ballot:?}").contains("s3cr3t")
        );
    }
    // One of two passwords is wrong, and the other node is fine.
    let urls = vec![with_login(&cluster.urls()[0], ":right"), cluster.urls()[1].clone()];
    check_words(&refusal(fresh_config(urls)), &[Cause::None, Cause::Credentials]);
    // The password becomes right in the end: the same client finds out by itself.
    let client = Client::open(cluster.config().password("later")).unwrap();
    no_quorum(client.try_lock("k", TTL).wait());
    for node in cluster.nodes() {
        let mut wire = node.connect();
        wire.ask(&["AUTH", "right"]).unwrap();
        assert_eq!(wire.ask(&["CONFIG", "SET", "requirepass", "later"]).unwrap(), b"+OK\r\n");
    }
    assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
}

#[test]
fn an_acl_user_with_little_more_than_its_keys_can_lock() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for node in cluster.nodes() {
        let mut rules = vec!["ACL", "SETUSER", "locker", "on", ">pw", "resetkeys", "~lock:*"];
        rules.extend(["-@all", "+hello", "+info", "+set", "+eval", "+get", "+del", "+pexpire"]);
        assert_eq!(node.command(&rules), b"+OK\r\n");
    }
    for config in [
        cluster.config().username("locker").password("pw"),
        fresh_config(cluster.urls().iter().map(|url| with_login(url, "locker:pw")).collect()),
    ] {
        let client = Client::connect(config).unwrap();
        let mut lease = client.try_lock("lock:1", TTL).wait().unwrap();
        lease.extend(TTL).wait().unwrap();
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        wait_released(&client, PATIENCE);
        assert_eq!(cluster.holders("lock:1"), 0);
        let ballot = no_quorum(client.try_lock("other", TTL).wait());
        assert!(causes(&ballot).contains(&Cause::KeyDenied), "{ballot}");
    }
}

#[test]
fn locks_live_in_the_configured_database() {
    let Some(cluster) = pair(&[]) else { return };
    let urls = vec![format!("{}/3", cluster.urls()[0]), {
        let path = cluster.node(1).unix_url();
        format!("{path}?db=5")
    }];
    let client = Client::connect(fresh_config(urls)).unwrap();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    for (index, database) in [(0, "3"), (1, "5")] {
        let node = cluster.node(index);
        assert!(!node.exists("k"));
        let mut wire = node.connect();
        wire.ask(&["SELECT", database]).unwrap();
        assert_eq!(wire.ask(&["EXISTS", "k"]).unwrap(), b":1\r\n");
    }
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    let missing: Vec<_> = cluster.urls().iter().map(|url| format!("{url}/99")).collect();
    check_words(&refusal(fresh_config(missing.clone())), &[Cause::Database; 2]);
    // A server that refuses the number stays with database 0, where the lock is another one.
    let lease = Client::connect(fresh_config(cluster.urls())).unwrap().try_lock("k", TTL).wait();
    let (key, token) = given_away(lease.unwrap());
    let client = Client::open(fresh_config(missing)).unwrap();
    settled_nodes(&client);
    assert_eq!(client.unlock_token(&key, &token).wait().unwrap(), Unlocked::Unknown);
    assert_eq!(cluster.holders("k"), 2);
}

#[test]
fn unix_sockets_are_as_good_as_tcp() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let paths = || cluster.nodes().map(RealServer::unix_url).collect::<Vec<_>>();
    let client = Client::connect(fresh_config(paths())).unwrap();
    (0..20).for_each(|_| cycle(&client, "k"));
    cluster.node_mut(0).kill9();
    cycle(&client, "k");
    cluster.node(1).freeze();
    no_quorum(client.try_lock("k", LockOptions::new(TTL).timeout(ms(50))).wait());
    cluster.node(1).thaw();
    cluster.node_mut(0).restart();
    assert!(eventually(PATIENCE, || {
        client.try_lock("k", TTL).wait().is_ok()
            && client.nodes().wait()[0].state == NodeState::Admitted
    }));
    wait_released(&client, PATIENCE);
    cycle(&client, "k");
}

/// The names of this process's clients at a node: the program's name or the chosen one, without the
/// id and the settings that follow.
fn names_at(node: &RealServer, program: &str) -> Vec<String> {
    let list = String::from_utf8(node.command(&["CLIENT", "LIST"])).expect("lines of text");
    let names = list.split(" name=redbolt:1:").skip(1).filter_map(|rest| rest.split(' ').next());
    let id_and_rest = names.filter_map(|name| name.split_once(':'));
    let names = id_and_rest.filter_map(|(id, rest)| {
        let (rest, settings) = rest.split_once(":l")?;
        assert!(settings.ends_with(":t30000:g0:f1:p"), "{settings}");
        (id.len() == 16 && rest.ends_with(program)).then(|| rest.to_owned())
    });
    names.collect()
}

#[test]
fn a_client_tells_each_node_its_host_process_and_name() {
    let Some(cluster) = pair(&[]) else { return };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let place = format!("{}:{}", host.trim(), std::process::id());
    let _named = Client::connect(cluster.config().client_name("till-7")).unwrap();
    let _other = Client::connect(cluster.config()).unwrap();
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    for node in cluster.nodes() {
        assert_eq!(names_at(node, ":till-7"), [format!("{place}:till-7")]);
        assert_eq!(names_at(node, program), [format!("{place}:{program}")]);
    }
}

#[test]
fn a_user_who_may_not_name_itself_connects_all_the_same() {
    for kind in available_kinds() {
        // HELLO takes a name whatever the rights; over RESP2 there is only CLIENT SETNAME.
        for (renamed, named) in [(&[][..], true), (&["--rename-command", "HELLO", ""][..], false)] {
            let Some(cluster) = Cluster::start(&[kind], renamed) else { return };
            let line = ["ACL", "SETUSER", "nameless", "on", ">pw", "~*", "+@all", "-client"];
            assert_eq!(cluster.node(0).command(&line), b"+OK\r\n");
            let config = cluster.config().client_name("shy").username("nameless").password("pw");
            let client = Client::connect(config).unwrap();
            cycle(&client, "k");
            assert_eq!(names_at(cluster.node(0), ":shy").len(), usize::from(named), "{kind:?}");
        }
    }
}

#[test]
fn one_server_under_two_names_votes_once() {
    let Some(cluster) = pair(&[]) else { return };
    let local = |index: usize| cluster.urls()[index].replace("127.0.0.1", "localhost");
    let urls = |index: usize| vec![cluster.urls()[index].clone(), local(index)];
    for index in 0..2 {
        let ballot = refusal(fresh_config(urls(index)));
        let duplicates = causes(&ballot).iter().filter(|cause| **cause == Cause::Duplicate).count();
        assert_eq!(duplicates, 1, "{ballot}");
        let socket = vec![cluster.node(index).unix_url(), cluster.urls()[index].clone()];
        let ballot = refusal(fresh_config(socket));
        assert!(causes(&ballot).contains(&Cause::Duplicate), "{ballot}");
    }
    // With an honest node beside them there are two voters of three.
    let three = [urls(0), vec![cluster.urls()[1].clone()]].concat();
    let client = Client::connect(fresh_config(three)).unwrap();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    assert_eq!(lease.votes().count(), 2);
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    cluster.occupy(1, "k");
    let error = client.try_lock("k", TTL).wait().unwrap_err();
    assert!(error.to_string().contains(Cause::Duplicate.text()), "{error}");
}

#[test]
fn what_is_no_independent_master_is_refused_and_accepted_when_it_is_mended() {
    type Fault = (Cause, &'static [&'static str], &'static [&'static str]);
    let table: [Fault; 4] = [
        (Cause::Replica, &["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
        (
            Cause::Eviction,
            &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
            &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
        ),
        (
            Cause::Eviction,
            &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"],
            &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
        ),
        (
            Cause::InfoDenied,
            &["ACL", "SETUSER", "default", "-info"],
            &["ACL", "SETUSER", "default", "+info"],
        ),
    ];
    let Some(cluster) = Cluster::mixed(5) else { return };
    for (cause, enter, leave) in table {
        for node in cluster.nodes() {
            assert_eq!(node.command(enter), b"+OK\r\n");
        }
        check_words(&refusal(cluster.config()), &[cause; 5]);
        let lenient = Client::connect(cluster.config().admission(Admission::Lenient));
        assert_eq!(lenient.is_ok(), cause == Cause::InfoDenied, "{lenient:?}");
        if let Ok(client) = lenient {
            cycle(&client, "k");
            assert!(client.nodes().wait().iter().all(|node| node.info_denied));
        }
        for node in cluster.nodes() {
            assert_eq!(node.command(leave), b"+OK\r\n");
        }
        cycle(&cluster.client(), "k");
    }
}

#[test]
fn a_cluster_node_and_a_full_server_are_refused() {
    let Some(cluster) = pair(&["--cluster-enabled", "yes"]) else { return };
    check_words(&refusal(cluster.config()), &[Cause::Cluster; 2]);
    let Some(cluster) = pair(&["--maxclients", "1"]) else { return };
    let mut guests: Vec<Wire> = cluster.nodes().map(RealServer::connect).collect();
    for (guest, node) in guests.iter_mut().zip(cluster.nodes()) {
        assert!(eventually(PATIENCE, || {
            let is_in = guest.ask(&["PING"]).is_ok_and(|pong| pong == b"+PONG\r\n");
            if !is_in {
                // The server still counted a connection that is gone, so it has closed this one.
                *guest = node.connect();
            }
            is_in
        }));
    }
    let ballot = refusal(cluster.config().connect_timeout(ms(1_000)));
    let is_full = |cause: &Cause| matches!(cause, Cause::TooManyClients | Cause::Closed);
    assert!(causes(&ballot).iter().all(is_full), "{ballot}");
}

#[test]
fn places_where_no_server_is_are_told_apart() {
    let Some(cluster) = Cluster::mixed(1) else { return };
    let none = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = none.local_addr().unwrap();
    drop(none);
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let web_address = web.local_addr().unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    thread::spawn(move || {
        for stream in web.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let urls = vec![
        cluster.urls()[0].clone(),
        format!("redis://{closed}"),
        format!("redis://{web_address}"),
        format!("redis://{}", mute.local_addr().unwrap()),
        "unix:///nowhere/at/all.sock".to_owned(),
        "redis://no-such-host.invalid:6379".to_owned(),
    ];
    let config = fresh_config(urls.clone()).connect_timeout(ms(1_500));
    let ballot = ends_within(ms(1_500), || refusal(config));
    let causes = causes(&ballot);
    assert_eq!(causes[..3], [Cause::None, Cause::ConnectionRefused, Cause::Protocol], "{ballot}");
    assert!(matches!(causes[3], Cause::Connecting | Cause::ConnectTimeout), "{ballot}");
    assert_eq!(causes[4], Cause::SocketPath, "{ballot}");
    // A machine without a name server may take long to answer.
    assert!(matches!(causes[5], Cause::NameUnknown | Cause::Connecting), "{ballot}");
    for ((name, _), url) in ballot.votes().zip(&urls) {
        assert!(url.ends_with(name), "{name}: {url}");
    }
}

const MAX_TTL: Duration = ms(2_500);

/// `max_ttl` and its drift: a node younger than this does not vote.
const GUARD: Duration = ms(2_527);

fn guarded(cluster: &Cluster) -> Config {
    cluster.config().restart_guard(RestartGuard::On).max_ttl(MAX_TTL)
}

fn quarantines(nodes: &[NodeHealth]) -> Vec<Duration> {
    let left = |node: &NodeHealth| {
        if let NodeState::Quarantined(left) = node.state { Some(left) } else { None }
    };
    nodes.iter().filter_map(left).collect()
}

#[test]
fn a_fresh_node_does_not_vote_before_it_is_old_enough_and_the_error_says_how_long() {
    let started = redbolt::now();
    let Some(cluster) = Cluster::mixed(3) else { return };
    let error = Client::connect(guarded(&cluster)).unwrap_err();
    let text = error.to_string();
    let ConnectError::NoQuorum(ballot) = error else { panic!("{text}") };
    let wait = ballot.quarantine().expect("a quarantine is what is missing");
    assert!(wait <= GUARD, "{wait:?}");
    check_words(&ballot, &[Cause::Quarantined; 3]);
    assert!(text.contains(&format!("in {:.1} s", wait.as_secs_f64())), "{text}");

    let client = Client::open(guarded(&cluster)).unwrap();
    let ballot = no_quorum(client.try_lock("k", ms(500)).wait());
    assert!(ballot.quarantine().is_some(), "{ballot}");
    assert!(quarantines(&client.nodes().wait()).len() >= 2, "the third may still say who it is");
    let mut lease = None;
    assert!(eventually(PATIENCE, || {
        lease = client.try_lock("k", ms(1_000)).wait().ok();
        lease.is_some()
    }));
    // A server's count of its age is at most one second ahead.
    let age = started.until(redbolt::now());
    assert!(age + ms(1_000) >= GUARD, "a node of {age:?} at the most has voted");
    for node in client.nodes().wait().iter().filter(|node| node.state == NodeState::Admitted) {
        assert!(node.uptime >= Some(ms(1_000)), "{node:?}");
    }
    assert_eq!(lease.unwrap().unlock().wait().unwrap(), Unlocked::Released);
}

/// A quorum that only waits for its age gives the lock at the first moment, without a further call.
#[test]
fn a_waiting_call_gets_its_lock_when_the_quarantine_ends() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = Client::open(guarded(&cluster)).unwrap();
    let lease = ends_within(GUARD + ms(500), || client.lock("k", ms(1_000)).wait()).unwrap();
    assert!(lease.is_valid());
}

/// The node that restarts loses its keys; if it voted at once, two clients could hold a lock.
#[test]
fn a_restarted_node_does_not_vote_until_its_old_locks_are_over() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let holder = Client::open(guarded(&cluster)).unwrap();
    let other = Client::open(guarded(&cluster)).unwrap();
    for client in [&holder, &other] {
        assert!(eventually(PATIENCE, || {
            drop(client.try_lock("warm", ms(500)).wait());
            client.nodes().wait().iter().all(|node| node.state == NodeState::Admitted)
        }));
    }
    // The lock is on nodes 0 and 2 alone; then node 0 comes back empty, while node 1 is free.
    cluster.occupy(1, "k");
    let lease = holder.try_lock("k", MAX_TTL).wait().unwrap();
    cluster.node(1).command(&["DEL", "k"]);
    cluster.node_mut(0).restart();
    while lease.is_valid() {
        let result = other.try_lock("k", MAX_TTL).wait();
        assert!(result.is_err() || !lease.is_valid(), "two clients hold one lock");
    }
    let left = quarantines(&other.nodes().wait());
    assert!(left.iter().all(|left| *left <= GUARD), "{left:?}");
    drop(lease);
    assert!(eventually(PATIENCE, || other.try_lock("k", MAX_TTL).wait().is_ok()));
}

/// A connection that breaks is no restart: the same `run_id` goes on voting.
#[test]
fn a_network_blip_puts_nobody_into_quarantine() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut driver = Driver::standalone(guarded(&cluster)).unwrap();
    let lock = |driver: &mut Driver| {
        let id = driver.try_lock("k", ms(1_000)).unwrap();
        let mut outcome = None;
        assert!(eventually(PATIENCE, || {
            driver.drive();
            outcome = driver.completion();
            outcome.is_some()
        }));
        let done = outcome.unwrap();
        assert_eq!(done.id, id);
        let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
        result
    };
    assert!(eventually(PATIENCE, || lock(&mut driver).is_ok()));
    assert!(eventually(PATIENCE, || {
        driver.drive();
        driver.voters().count() == 3
    }));
    for node in cluster.nodes() {
        node.hang_up();
    }
    assert!(eventually(PATIENCE, || {
        driver.drive();
        driver.nodes().iter().any(|node| node.state != NodeState::Admitted)
    }));
    // The call may fail on a connection that was dead already; the next one does not.
    if let Err(error) = lock(&mut driver) {
        assert!(!error.to_string().contains(Cause::Quarantined.text()), "{error}");
    }
    assert!(quarantines(&driver.nodes()).is_empty());
    let result = lock(&mut driver);
    assert!(result.is_ok(), "{result:?}");
}

/// The process is the same, but its memory is not: its master may have overwritten it.
#[test]
fn a_master_that_was_a_replica_in_between_does_not_vote_until_its_old_locks_are_over() {
    let Some(cluster) = Cluster::mixed(1) else { return };
    let node = cluster.node(0);
    let client = Client::open(guarded(&cluster)).unwrap();
    let lock = || client.try_lock("k", ms(500)).wait().map(drop);
    assert!(eventually(PATIENCE, || lock().is_ok()));
    node.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(lock().unwrap_err().to_string().contains(Cause::Replica.text()));
    node.command(&["REPLICAOF", "NO", "ONE"]);
    let last_answer = redbolt::now();
    assert!(lock().unwrap_err().to_string().contains(Cause::Quarantined.text()));
    assert!(eventually(PATIENCE, || lock().is_ok()));
    assert!(last_answer.until(redbolt::now()) + ms(50) >= GUARD, "too early");
    drop(client);

    // Only a connection can show it: another `master_replid` at the next greeting.
    let client = Client::open(guarded(&cluster)).unwrap();
    assert!(eventually(PATIENCE, || client.try_lock("k", ms(500)).wait().is_ok()));
    for command in [&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]] {
        node.command(command);
    }
    node.hang_up();
    assert!(eventually(PATIENCE, || {
        let result = client.try_lock("k", ms(500)).wait();
        let text = result.err().map_or_else(String::new, |error| error.to_string());
        text.contains(Cause::Quarantined.text())
    }));
}

/// Loading takes a while. The node answers HELLO and INFO meanwhile, and the client asks for no
/// vote.
#[test]
fn a_loading_node_is_refused_for_as_long_as_it_loads() {
    let Some(mut cluster) = pair(&["--rdbcompression", "no"]) else { return };
    for index in 0..2 {
        let client = cluster.client();
        let mut wire = cluster.node(index).connect();
        for key in 0..200 {
            wire.ask(&["SET", &format!("key{key}"), &"x".repeat(1_100)]).unwrap();
        }
        assert_eq!(wire.ask(&["SAVE"]).unwrap(), b"+OK\r\n");
        let slow = ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"];
        cluster.node_mut(index).restart_until(&slow, |reply| reply.starts_with(b"-LOADING"));
        let ballot = refusal(cluster.config());
        assert_eq!(causes(&ballot)[index], Cause::Loading);
        assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
        drop(client);
        cycle(&cluster.client(), "k");
        cluster.node_mut(index).restart();
    }
}
