//! Embedded nodes behave like processes: they hang, die, come back, and stay bounded.

use std::io::ErrorKind;
use std::time::Duration;

use redbolt_embedded::model::Condition;
use redbolt_embedded::{Flavor, Memory, NodeState, Nodes, NodesError, NodesOptions};

use redbolt_rig::{RealServer, Wire, available_kinds, port_of, request};

fn connect(nodes: &Nodes, node: usize) -> Wire {
    let urls = nodes.urls();
    let url = urls.get(node).expect("a node of that number");
    Wire::connect_url(url).expect("a running node accepts")
}

fn run_id(nodes: &Nodes, node: usize) -> String {
    let info = connect(nodes, node).ask(&["INFO", "server"]).expect("a running node answers");
    let info = String::from_utf8(info).expect("INFO is text");
    let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    line.expect("INFO has a run_id").to_owned()
}

#[test]
fn five_nodes_answer_on_ports_of_their_own_and_are_told_apart() {
    let nodes = Nodes::start(5).unwrap();
    let mut ids: Vec<_> = (0..nodes.len()).map(|node| run_id(&nodes, node)).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    assert!(!nodes.is_empty());
    assert_eq!(connect(&nodes, 0).ask(&["SET", "k", "v", "NX", "PX", "9000"]).unwrap(), b"+OK\r\n");
    assert_eq!(nodes.key_count(0).unwrap(), 1);
    assert_eq!(nodes.key_count(1).unwrap(), 0);
}

#[test]
fn a_first_start_counts_as_an_hour_ago_and_a_restart_as_now() {
    let nodes = Nodes::start(1).unwrap();
    assert!(nodes.uptime(0).unwrap() >= Duration::from_secs(3600));
    let info = connect(&nodes, 0).ask(&["INFO"]).unwrap();
    assert!(String::from_utf8(info).unwrap().contains("\r\nuptime_in_seconds:360"));
    let before = run_id(&nodes, 0);
    nodes.restart(0, Memory::Lost).unwrap();
    assert!(nodes.uptime(0).unwrap() < Duration::from_secs(60));
    assert_ne!(run_id(&nodes, 0), before);
}

/// As with SIGSTOP, the system accepts connections for a paused node. The node runs the commands on
/// resume, also those of a client that has gone.
#[test]
fn a_paused_node_runs_what_was_sent_to_it_on_resume() {
    let nodes = Nodes::start(1).unwrap();
    let mut before = connect(&nodes, 0);
    assert_eq!(before.ask(&["PING"]).unwrap(), b"+PONG\r\n");
    nodes.pause(0).unwrap();
    assert_eq!(nodes.state(0).unwrap(), NodeState::Paused);
    before.send(&request(&["SET", "before", "v"])).unwrap();
    let mut gone = connect(&nodes, 0);
    gone.send(&request(&["SET", "gone", "v"])).unwrap();
    drop(gone);
    assert_eq!(nodes.key_count(0).unwrap(), 0);
    nodes.resume(0).unwrap();
    assert_eq!(nodes.state(0).unwrap(), NodeState::Running);
    assert_eq!(before.reply().unwrap(), b"+OK\r\n");
    let mut after = connect(&nodes, 0);
    assert_eq!(after.ask(&["DBSIZE"]).unwrap(), b":2\r\n");
}

/// The node cannot write a message to a client that has gone; the client's earlier commands run all
/// the same.
fn runs_what_a_client_sent_before_it_closed(
    connect: impl Fn() -> Wire,
    freeze: impl Fn(),
    thaw: impl Fn(),
) {
    let (mut publisher, mut gone) = (connect(), connect());
    publisher.ask(&["SET", "k", "v"]).expect("the server answers");
    // With RESP3 a subscriber may send other commands too.
    gone.ask(&["HELLO", "3"]).expect("the server answers");
    gone.ask(&["SUBSCRIBE", "c"]).expect("the server answers");
    // A client that closes with a message unread resets its connection.
    publisher.ask(&["PUBLISH", "c", "unread"]).expect("the server answers");
    freeze();
    publisher.send(&request(&["PUBLISH", "c", "late"])).expect("the server answers");
    gone.send(&request(&["DEL", "k"])).expect("the server answers");
    drop(gone);
    thaw();
    publisher.reply().expect("the server answers");
    assert_eq!(publisher.ask(&["GET", "k"]).expect("the server answers"), b"$-1\r\n");
}

#[test]
fn a_node_runs_what_a_client_sent_before_it_closed() {
    let nodes = Nodes::start(1).unwrap();
    runs_what_a_client_sent_before_it_closed(
        || connect(&nodes, 0),
        || nodes.pause(0).unwrap(),
        || nodes.resume(0).unwrap(),
    );
}

#[test]
fn real_servers_run_what_a_client_sent_before_it_closed() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        runs_what_a_client_sent_before_it_closed(
            || server.connect(),
            || server.freeze(),
            || server.thaw(),
        );
    }
}

#[test]
fn a_killed_node_closes_its_connections_and_refuses_new_ones() {
    let nodes = Nodes::start(2).unwrap();
    let mut wire = connect(&nodes, 0);
    assert_eq!(wire.ask(&["PING"]).unwrap(), b"+PONG\r\n");
    nodes.kill(0).unwrap();
    assert_eq!(nodes.state(0).unwrap(), NodeState::Killed);
    assert!(wire.ask(&["PING"]).is_err());
    let refused = Wire::connect_url(&nodes.urls()[0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(connect(&nodes, 1).ask(&["PING"]).unwrap(), b"+PONG\r\n");
    // Neither call brings a process back.
    nodes.pause(0).unwrap();
    nodes.resume(0).unwrap();
    assert_eq!(nodes.state(0).unwrap(), NodeState::Killed);
}

#[test]
fn nobody_else_gets_the_port_of_a_killed_node() {
    let nodes = Nodes::start(1).unwrap();
    let address = nodes.urls()[0].trim_start_matches("redis://").to_owned();
    nodes.kill(0).unwrap();
    let taken = std::net::TcpListener::bind(&address).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    nodes.restart(0, Memory::Lost).unwrap();
    assert_eq!(connect(&nodes, 0).ask(&["PING"]).unwrap(), b"+PONG\r\n");
}

#[test]
fn a_node_that_hangs_up_goes_on_for_clients_that_come_back() {
    let nodes = Nodes::start(1).unwrap();
    let mut wire = connect(&nodes, 0);
    assert_eq!(wire.ask(&["SET", "k", "v"]).unwrap(), b"+OK\r\n");
    nodes.hang_up(0).unwrap();
    assert!(wire.ask(&["PING"]).is_err());
    assert_eq!(nodes.state(0).unwrap(), NodeState::Running);
    assert_eq!(connect(&nodes, 0).ask(&["GET", "k"]).unwrap(), b"$1\r\nv\r\n");
}

#[test]
fn a_restart_keeps_the_keys_or_loses_them_as_asked() {
    let nodes = Nodes::start(1).unwrap();
    connect(&nodes, 0).ask(&["SET", "k", "v", "PX", "60000"]).unwrap();
    nodes.kill(0).unwrap();
    nodes.restart(0, Memory::Kept).unwrap();
    assert_eq!(connect(&nodes, 0).ask(&["GET", "k"]).unwrap(), b"$1\r\nv\r\n");
    // A restart first kills a running or paused node.
    let mut old = connect(&nodes, 0);
    nodes.pause(0).unwrap();
    nodes.restart(0, Memory::Lost).unwrap();
    assert!(old.ask(&["PING"]).is_err());
    assert_eq!(connect(&nodes, 0).ask(&["GET", "k"]).unwrap(), b"$-1\r\n");
}

/// The client asks for 4 GB of replies and reads none. The node cuts it off after a few tens of
/// megabytes, and goes on answering others.
#[test]
fn a_client_that_never_reads_is_cut_off() {
    let nodes = Nodes::start(1).unwrap();
    let mut greedy = connect(&nodes, 0);
    greedy.ask(&["SET".as_bytes(), b"k", &vec![b'x'; 1 << 20]]).unwrap();
    let batch = request(&["GET", "k"]).repeat(64);
    let cut_off = (0..64).any(|_| greedy.send(&batch).is_err());
    assert!(cut_off || greedy.read_to_end().len() < 1 << 30);
    assert_eq!(connect(&nodes, 0).ask(&["PING"]).unwrap(), b"+PONG\r\n");
}

#[test]
fn a_large_reply_arrives_whole_at_a_slow_reader() {
    let nodes = Nodes::start(1).unwrap();
    let mut wire = connect(&nodes, 0);
    let value = vec![b'x'; 12 << 20];
    assert_eq!(wire.ask(&["SET".as_bytes(), b"k", &value]).unwrap(), b"+OK\r\n");
    wire.send(&[request(&["GET", "k"]), request(&["PING"])].concat()).unwrap();
    assert_eq!(wire.reply().unwrap().len(), value.len() + "$12582912\r\n\r\n".len());
    assert_eq!(wire.reply().unwrap(), b"+PONG\r\n");
}

#[test]
fn one_client_too_many_is_told_so() {
    let options = NodesOptions::new(1).max_clients(2);
    let nodes = Nodes::start_with(&options).unwrap();
    let mut first = connect(&nodes, 0);
    let mut second = connect(&nodes, 0);
    assert!(first.ask(&["PING"]).is_ok() && second.ask(&["PING"]).is_ok());
    let told = connect(&nodes, 0).read_to_end();
    assert_eq!(told, b"-ERR max number of clients reached\r\n");
    drop(first);
    let mut answered = (0..1000).map(|_| connect(&nodes, 0).ask(&["PING"]));
    assert!(answered.any(|reply| reply.is_ok_and(|reply| reply == b"+PONG\r\n")));
}

#[test]
fn ports_flavors_and_credentials_are_as_asked() {
    let lone = Nodes::start(1).unwrap();
    let taken = port_of(&lone.urls()[0]);
    let error = Nodes::start_with(&NodesOptions::new(1).first_port(taken)).unwrap_err();
    assert!(matches!(error, NodesError::Io { node: 0, .. }), "{error}");
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    drop(lone);

    // Other tests draw their ports at random: the test may need some tries for three in a row.
    let flavors = [Flavor::Redis70, Flavor::Valkey91];
    let options = NodesOptions::new(3).flavors(flavors).password("secret").user("bob", "builder");
    let mut firsts = (0..100).map(|index| 17_000 + index * 10);
    let nodes = firsts.find_map(|first| Nodes::start_with(&options.clone().first_port(first)).ok());
    let nodes = nodes.unwrap();
    let first = port_of(&nodes.urls()[0]);
    assert_eq!(nodes.urls()[2], format!("redis://127.0.0.1:{}", first + 2));
    let version = |node| {
        let mut wire = connect(&nodes, node);
        assert!(wire.ask(&["PING"]).unwrap().starts_with(b"-NOAUTH"));
        assert_eq!(wire.ask(&["AUTH", "bob", "builder"]).unwrap(), b"+OK\r\n");
        let hello = wire.ask(&["HELLO", "3", "AUTH", "default", "secret"]).unwrap();
        String::from_utf8(hello).unwrap()
    };
    assert!(version(0).contains("7.0.15") && version(2).contains("7.0.15"));
    assert!(version(1).contains("9.1.2"));
}

#[test]
fn a_node_that_is_not_there_is_an_error() {
    let nodes = Nodes::start(1).unwrap();
    let error = nodes.pause(1).unwrap_err();
    assert!(matches!(error, NodesError::NoSuchNode { node: 1, count: 1 }));
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_condition_holds_until_it_is_taken_back() {
    let nodes = Nodes::start(1).unwrap();
    let mut wire = connect(&nodes, 0);
    nodes.set_condition(0, Condition::Replica(true)).unwrap();
    assert!(wire.ask(&["SET", "k", "v"]).unwrap().starts_with(b"-READONLY"));
    nodes.set_condition(0, Condition::Replica(false)).unwrap();
    assert_eq!(wire.ask(&["SET", "k", "v"]).unwrap(), b"+OK\r\n");
}

#[test]
fn a_message_reaches_its_subscribers_on_other_connections() {
    let nodes = Nodes::start(1).unwrap();
    let mut old = connect(&nodes, 0);
    let mut new = connect(&nodes, 0);
    new.ask(&["HELLO", "3"]).unwrap();
    assert_eq!(
        old.ask(&["SUBSCRIBE", "c"]).unwrap(),
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    );
    assert_eq!(
        new.ask(&["SUBSCRIBE", "c"]).unwrap(),
        b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    );
    assert_eq!(connect(&nodes, 0).ask(&["PUBLISH", "c", "m"]).unwrap(), b":2\r\n");
    assert_eq!(old.reply().unwrap(), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    assert_eq!(new.reply().unwrap(), b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    drop(old);
    let mut publisher = connect(&nodes, 0);
    let mut counts = (0..1000).map(|_| publisher.ask(&["PUBLISH", "c", "m"]).unwrap());
    assert!(counts.any(|count| count == b":1\r\n"), "a subscriber that left no longer counts");
}
