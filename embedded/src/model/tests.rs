//! Behaviour that only the model can show: its clock, its bounds, and conditions into which tests
//! put no real server.

use std::time::Duration;

use super::{Condition, Delivery, Flavor, Life, Memory, Progress, Server, ServerOptions, Session};
use crate::Instant;

const START: Instant = Instant::from_nanos(1_000_000_000);
const WALL_MS: i64 = 1_700_000_000_000;

fn life(id: u8) -> Life {
    Life::new([id; 20], [id + 100; 20], START, WALL_MS)
}

fn server() -> Server {
    Server::new(&ServerOptions::new(Flavor::Valkey91), life(1))
}

fn at(passed_ms: u64) -> Instant {
    START + Duration::from_millis(passed_ms)
}

/// Runs inline commands, one per line, `passed_ms` after the start. Returns all replies.
fn ask(server: &mut Server, session: &mut Session, passed_ms: u64, lines: &str) -> String {
    let mut out = Vec::new();
    let _ = server.execute(session, format!("{lines}\n").as_bytes(), at(passed_ms), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_key_lives_strictly_longer_than_its_ttl() {
    let mut server = server();
    let mut session = server.connect();
    assert_eq!(ask(&mut server, &mut session, 0, "SET k v PX 100"), "+OK\r\n");
    assert_eq!(ask(&mut server, &mut session, 100, "PTTL k\nGET k"), ":0\r\n$1\r\nv\r\n");
    assert_eq!(ask(&mut server, &mut session, 101, "PTTL k\nGET k"), ":-2\r\n$-1\r\n");
}

#[test]
fn a_stepped_wall_clock_moves_ends_and_age() {
    let mut server = Server::new(&ServerOptions::default(), life(1).age(Duration::from_secs(3600)));
    let mut session = server.connect();
    ask(&mut server, &mut session, 0, "SET k v PX 10000");
    assert_eq!(server.uptime(at(2_000)), Duration::from_secs(3602));
    server.step_wall_clock(-5_000);
    assert_eq!(ask(&mut server, &mut session, 2_000, "PTTL k"), ":13000\r\n");
    assert_eq!(server.uptime(at(2_000)), Duration::from_secs(3597));
    server.step_wall_clock(20_000);
    assert_eq!(server.value(b"k", at(2_000)), None);
    assert_eq!(server.wall_ms(at(2_000)), WALL_MS + 17_000);
}

#[test]
fn expired_keys_that_nobody_asks_for_do_not_pile_up() {
    let mut server = server();
    let mut session = server.connect();
    let mut longest = 0;
    for index in 0..50_000_u64 {
        ask(&mut server, &mut session, index, &format!("SET key:{index} v NX PX 10"));
        longest = longest.max(server.keys.len());
    }
    assert!(longest < 4_000, "{longest} keys at once, of 11 that lived");
    assert_eq!(server.key_count(at(60_000)), 0);
}

#[test]
fn a_flood_of_replies_stops_at_the_output_limit_and_goes_on_when_asked() {
    let mut server = server();
    let mut session = server.connect();
    let value = "x".repeat(60_000);
    ask(&mut server, &mut session, 0, &format!("SET k {value}"));
    let (mut out, mut total) = (Vec::new(), 0);
    let flood = "GET k\n".repeat(100);
    let mut progress = server.execute(&mut session, flood.as_bytes(), at(0), &mut out);
    while progress == Progress::More {
        assert!(out.len() < 2 << 20);
        total += out.len();
        out.clear();
        progress = server.execute(&mut session, b"", at(0), &mut out);
    }
    assert_eq!(progress, Progress::Idle);
    assert_eq!(total + out.len(), 100 * (value.len() + "$60000\r\n\r\n".len()));
}

#[test]
fn a_restart_keeps_keys_only_if_asked() {
    let mut server = server();
    let mut session = server.connect();
    ask(&mut server, &mut session, 0, "SET k v PX 60000");
    server.restart(life(2), Memory::Kept);
    let mut session = server.connect();
    assert_eq!(session.id(), 1);
    assert_eq!(ask(&mut server, &mut session, 0, "GET k"), "$1\r\nv\r\n");
    assert!(ask(&mut server, &mut session, 0, "INFO server").contains("run_id:0202020202"));
    server.restart(life(3), Memory::Lost);
    assert_eq!(server.key_count(at(0)), 0);
}

#[test]
fn a_promoted_replica_has_a_new_replid_and_no_keys() {
    let mut server = server();
    let mut session = server.connect();
    ask(&mut server, &mut session, 0, "SET k v");
    server.set_condition(Condition::Promoted([7; 20]));
    let info = ask(&mut server, &mut session, 0, "INFO replication");
    assert!(info.contains("role:master\r\n"), "{info}");
    assert!(info.contains(&format!("master_replid:{}\r\n", "07".repeat(20))), "{info}");
    assert!(info.contains(&format!("master_replid2:{}\r\n", "65".repeat(20))), "{info}");
    assert_eq!(ask(&mut server, &mut session, 0, "GET k"), "$-1\r\n");
}

#[test]
fn eviction_takes_a_key_away_and_is_counted() {
    let mut server = server();
    let mut session = server.connect();
    server.set_condition(Condition::MaxmemoryPolicy("allkeys-lru".to_owned()));
    ask(&mut server, &mut session, 0, "SET k v");
    assert!(server.evict(b"k") && !server.evict(b"k"));
    assert!(ask(&mut server, &mut session, 0, "INFO stats").contains("evicted_keys:1\r\n"));
    assert!(ask(&mut server, &mut session, 0, "INFO memory").contains("policy:allkeys-lru\r\n"));
    server.set_condition(Condition::EvictedKeys(9));
    assert!(ask(&mut server, &mut session, 0, "INFO stats").contains("evicted_keys:9\r\n"));
}

#[test]
fn a_cluster_node_says_so_wherever_it_is_asked() {
    let mut server = server();
    let mut session = server.connect();
    server.set_condition(Condition::Cluster(true));
    let said = ask(&mut server, &mut session, 0, "HELLO\nINFO server cluster");
    assert!(said.contains("$4\r\nmode\r\n$7\r\ncluster\r\n"), "{said}");
    assert!(said.contains("server_mode:cluster\r\n") && said.contains("cluster_enabled:1\r\n"));
}

#[test]
fn a_message_is_delivered_in_its_subscribers_protocol() {
    let mut server = server();
    let (mut one, mut other) = (server.connect(), server.connect());
    ask(&mut server, &mut one, 0, "SUBSCRIBE c\nSUBSCRIBE c");
    assert_eq!(ask(&mut server, &mut other, 0, "PUBLISH c m"), ":1\r\n");
    let deliveries: Vec<Delivery> = server.deliveries().collect();
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].session, one.id());
    assert_eq!(deliveries[0].bytes, b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
}

#[test]
fn a_script_that_is_not_known_is_refused_in_plain_words() {
    let mut server = server();
    let mut session = server.connect();
    let said = ask(&mut server, &mut session, 0, "EVAL 'return 1' 0");
    assert!(
        said.lines().all(|line| line.starts_with("-ERR an embedded node has no Lua")),
        "{said}"
    );
}
