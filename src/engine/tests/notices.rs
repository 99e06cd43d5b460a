//! Notices about nodes: each fault once, until the node is well again.

use super::*;
use crate::guards::Admission;

/// The notices that wait, as words.
fn told(rig: &mut Rig) -> Vec<String> {
    std::iter::from_fn(|| rig.engine.poll_notice()).map(|notice| notice.to_string()).collect()
}

/// One lock, to which the first node gives this answer while the others grant.
fn lock(rig: &mut Rig, key: &str, first: &str) {
    rig.acquire(key);
    rig.answer(0, first);
    rig.answer_all(1..3, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.detach(lease).unwrap();
    rig.pass();
}

#[test]
fn a_refused_vote_is_told_once_however_many_locks_it_fails() {
    for (answer, text) in [
        ("-MISCONF Errors writing to the AOF file: secret\r\n", "refuses writes (saving failed)"),
        ("-OOM command not allowed\r\n", "out of memory (maxmemory)"),
        ("-NOPERM User u has no permissions to run the 'set' command\r\n", "command denied by ACL"),
        ("-NOPERM No permissions to access a key\r\n", "key denied by ACL"),
        ("-READONLY You can't write against a read only replica.\r\n", "is a replica"),
        ("-NOREPLICAS Not enough good replicas to write.\r\n", "refuses writes (too few replicas)"),
    ] {
        let mut rig = Rig::new(3);
        assert!(told(&mut rig).is_empty());
        lock(&mut rig, "k", answer);
        assert_eq!(told(&mut rig), [format!("n:1: {text}")]);
        for turn in 0..1_000 {
            lock(&mut rig, &turn.to_string(), answer);
        }
        assert_eq!(told(&mut rig), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_node_is_well_again_once_it_grants_and_has_refused_nothing_for_a_while() {
    const FULL: &str = "-OOM command not allowed\r\n";
    let mut rig = Rig::new(3);
    lock(&mut rig, "a", FULL);
    assert_eq!(told(&mut rig).len(), 1);
    // At the limit of its memory the node refuses and grants in turn.
    for turn in 0..20 {
        rig.advance(500 * MS);
        lock(&mut rig, &turn.to_string(), if turn % 2 == 0 { "+OK\r\n" } else { FULL });
        assert_eq!(told(&mut rig), Vec::<String>::new());
    }
    rig.advance(11_000 * MS);
    assert_eq!(told(&mut rig), Vec::<String>::new(), "time alone shows nothing");
    lock(&mut rig, "b", "+OK\r\n");
    assert_eq!(told(&mut rig), ["n:1: votes again"]);
    lock(&mut rig, "c", FULL);
    assert_eq!(told(&mut rig), ["n:1: out of memory (maxmemory)"]);
}

#[test]
fn a_refused_greeting_is_told_once_over_all_its_repetitions() {
    const WRONG: &str = "-WRONGPASS invalid username-password pair\r\n";
    let mut rig = Rig::unconnected(1, |config| config.password("p"));
    for _ in 0..10 {
        rig.greet(0, WRONG, "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
        rig.inbox[0].clear();
    }
    assert_eq!(told(&mut rig), ["n:1: user or password refused"]);
    rig.connect(0);
    assert_eq!(told(&mut rig), ["n:1: votes again"]);
    rig.lose(0);
    rig.greet(0, WRONG, "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
    assert_eq!(told(&mut rig), ["n:1: user or password refused"]);
}

#[test]
fn another_cause_is_told_and_the_first_is_not_told_again() {
    let mut rig = Rig::unconnected(1, |config| config.admission(Admission::Strict));
    let info =
        |policy: &str| format!("run_id:0\r\nconnected_slaves:0\r\nmaxmemory_policy:{policy}\r\n");
    rig.greet(0, HELLO, &info("allkeys-lru"));
    assert_eq!(told(&mut rig).len(), 1);
    rig.greet(0, HELLO, "role:slave\r\nrun_id:0\r\n");
    assert_eq!(told(&mut rig), ["n:1: is a replica"]);
    rig.greet(0, HELLO, &info("allkeys-lru"));
    assert_eq!(told(&mut rig), Vec::<String>::new());
    rig.greet(0, HELLO, &info("noeviction"));
    assert_eq!(told(&mut rig), ["n:1: votes again"]);
}

#[test]
fn a_node_that_is_only_away_is_no_notice() {
    let mut rig = Rig::new(3);
    rig.lose(0);
    rig.until_wanted(0);
    rig.engine.handle_lost(node(0), Cause::ConnectionRefused, rig.now);
    rig.advance(1_000 * MS);
    rig.connect(0);
    assert_eq!(told(&mut rig), Vec::<String>::new());
}

#[test]
fn a_fault_of_tls_is_told_once_however_often_the_node_is_tried() {
    let mut rig = Rig::unconnected(1, |config| config);
    for _ in 0..20 {
        rig.until_wanted(0);
        rig.engine.handle_lost(node(0), Cause::CertificateExpired, rig.now);
    }
    assert_eq!(told(&mut rig), ["n:1: its certificate is expired or not yet valid"]);
    rig.connect(0);
    assert_eq!(told(&mut rig), ["n:1: votes again"]);
}

/// Some TLS servers ask for TLS by an alert, which is not RESP.
#[test]
fn an_alert_for_an_answer_to_the_greeting_says_that_the_port_is_one_of_tls() {
    let alert = "\u{15}\u{3}\u{1}\0\u{2}\u{2}F";
    let mut rig = Rig::unconnected(1, |config| config);
    rig.until_wanted(0);
    rig.engine.handle_connected(node(0), rig.now);
    rig.receive(0, alert);
    assert_eq!(rig.engine.nodes(rig.now)[0].cause, Cause::TlsWanted);
    rig.connect(0);
    // Later an alert is as odd as any other bytes.
    rig.receive(0, alert);
    assert_eq!(rig.engine.nodes(rig.now)[0].cause, Cause::Protocol);
}
