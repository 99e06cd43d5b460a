//! Nodes that can only compare by WATCH.

use super::*;

const OLD: &str = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n";
const DENIED: &str = "-NOPERM this user has no permissions to run the 'eval' command\r\n";

/// One old node whose user may not run scripts, at the last step of its dialect.
fn rig() -> Rig {
    let mut rig = Rig::unconnected(1, |config| config);
    rig.greet(0, OLD, "run_id:0\r\nuptime_in_seconds:9999\r\n");
    assert_eq!(rig.waiting(0), ["SCRIPT", "SCRIPT"]);
    rig.answer(0, DENIED);
    rig.answer(0, DENIED);
    let lease = rig.lease("warm");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer(0, DENIED);
    rig.answer(0, DENIED);
    rig.collect();
    let token = rig.inbox[0][2][1].clone();
    assert_eq!(rig.waiting(0), JOB, "{token}");
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "_\r\n");
    rig.answer(0, "+OK\r\n");
    assert!(rig.engine.poll_event(rig.now).is_some());
    rig.engine.release_quietly(lease, rig.now);
    assert_eq!(rig.engine.slots_in_use(), 0, "nothing is held, nothing is released");
    // The release steps down by itself.
    let lease = rig.lease("warm");
    rig.engine.release_quietly(lease, rig.now);
    rig.answer(0, DENIED);
    rig.answer(0, DENIED);
    assert_eq!(rig.waiting(0), JOB);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "_\r\n");
    rig.answer(0, "+OK\r\n");
    assert_eq!(rig.engine.slots_in_use(), 0);
    rig
}

/// What a job asks first.
const JOB: [&str; 4] = ["MULTI", "EXEC", "WATCH", "GET"];

/// The node has transactions.
fn prove(rig: &mut Rig) {
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "*0\r\n");
}

/// A lease and its token.
fn lease(rig: &mut Rig, key: &str) -> (LeaseId, String) {
    let lease = rig.lease(key);
    let token = rig.engine.lease_name(lease).unwrap().1.to_string();
    (lease, token)
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn a_key_that_holds_the_token_is_deleted_in_one_unbroken_transaction() {
    let mut rig = rig();
    let (lease, token) = lease(&mut rig, "a");
    rig.engine.release(lease, rig.now).unwrap();
    assert_eq!(rig.waiting(0), JOB);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    assert_eq!(rig.waiting(0), ["MULTI", "DEL", "EXEC"]);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "+QUEUED\r\n");
    rig.answer(0, "*1\r\n:1\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Unlocked::Released, .. })), "{event:?}");
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_key_that_holds_another_token_is_left_alone() {
    let mut rig = rig();
    let (lease, _) = lease(&mut rig, "a");
    rig.engine.release(lease, rig.now).unwrap();
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk("another"));
    assert_eq!(rig.waiting(0), ["UNWATCH"]);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Unlocked::NotHeld, .. })), "{event:?}");
}

#[test]
fn a_second_watch_goes_behind_the_exec_of_the_first() {
    let mut rig = rig();
    let (first, token) = lease(&mut rig, "a");
    let (second, other) = lease(&mut rig, "b");
    rig.engine.release_quietly(first, rig.now);
    rig.engine.release_quietly(second, rig.now);
    assert_eq!(rig.waiting(0), JOB);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    assert_eq!(rig.waiting(0), ["MULTI", "DEL", "EXEC", "MULTI", "EXEC", "WATCH", "GET"]);
    for answer in ["+OK\r\n", "+QUEUED\r\n", "*1\r\n:1\r\n"] {
        rig.answer(0, answer);
    }
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&other));
    assert_eq!(rig.waiting(0), ["MULTI", "DEL", "EXEC"]);
    assert_eq!(rig.inbox[0][1][1], "b");
}

#[test]
fn a_key_that_changed_under_the_watch_is_looked_at_again() {
    let mut rig = rig();
    let (lease, token) = lease(&mut rig, "a");
    rig.engine.release_quietly(lease, rig.now);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "+QUEUED\r\n");
    rig.answer(0, "_\r\n");
    assert_eq!(rig.waiting(0), JOB);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "_\r\n");
    assert_eq!(rig.waiting(0), ["UNWATCH"]);
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_set_of_the_same_key_waits_for_the_exec_and_one_of_another_does_not() {
    let mut rig = rig();
    let (lease, token) = lease(&mut rig, "a");
    rig.engine.release_quietly(lease, rig.now);
    rig.acquire("a");
    rig.acquire("b");
    assert_eq!(rig.waiting(0), ["MULTI", "EXEC", "WATCH", "GET", "SET"]);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    assert_eq!(rig.waiting(0), ["SET", "MULTI", "DEL", "EXEC", "SET"]);
    assert_eq!(rig.inbox[0][4][1], "a");
    for answer in ["+OK\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n:1\r\n", "+OK\r\n"] {
        rig.answer(0, answer);
    }
    rig.locked();
    rig.locked();
}

#[test]
fn an_extension_sets_the_same_token_and_never_creates() {
    let mut rig = rig();
    let (lease, token) = lease(&mut rig, "a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    rig.collect();
    assert_eq!(rig.inbox[0][1], ["SET", "a", token.as_str(), "XX", "PX", "10000"]);
    for answer in ["+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n"] {
        rig.answer(0, answer);
    }
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
}

#[test]
fn a_lost_connection_leaves_every_waiting_release_a_debt() {
    let mut rig = rig();
    let (first, token) = lease(&mut rig, "a");
    let (second, _) = lease(&mut rig, "b");
    rig.engine.release_quietly(first, rig.now);
    rig.engine.release_quietly(second, rig.now);
    rig.acquire("b");
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    rig.lose(0);
    let error = rig.refused();
    assert_eq!(vote_of(&error, 0), Vote::Failed(Cause::Closed), "its SET was never written");
    assert_eq!(rig.engine.nodes(rig.now)[0].debts, 2);
    assert_eq!(rig.engine.slots_in_use(), 2);
}

#[test]
fn a_command_that_is_not_queued_says_why() {
    let mut rig = rig();
    let (lease, token) = lease(&mut rig, "a");
    rig.engine.release_quietly(lease, rig.now);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "-OOM command not allowed\r\n");
    rig.answer(0, "-EXECABORT Transaction discarded because of previous errors.\r\n");
    // Not a reason to give the dialect up: it is asked for again later.
    assert_eq!(rig.engine.nodes(rig.now)[0].state, NodeState::Admitted);
    rig.advance(1100 * MS);
    assert_eq!(rig.waiting(0), JOB);
}

#[test]
fn a_node_on_which_no_step_is_left_is_refused() {
    let mut rig = rig();
    let (lease, _) = lease(&mut rig, "a");
    rig.engine.release_quietly(lease, rig.now);
    prove(&mut rig);
    rig.answer(0, "-NOPERM this user has no permissions to run the 'watch' command\r\n");
    rig.answer(0, "_\r\n");
    let health = &rig.engine.nodes(rig.now)[0];
    assert_eq!((health.state, health.cause), (NodeState::Refused, Cause::NoDialect));
}

#[test]
fn the_value_behind_a_refused_watch_is_not_taken_for_the_next_ones() {
    let mut rig = rig();
    let (first, token) = lease(&mut rig, "a");
    let (second, _) = lease(&mut rig, "b");
    rig.engine.release_quietly(first, rig.now);
    rig.engine.release_quietly(second, rig.now);
    prove(&mut rig);
    rig.answer(0, "-NOPERM this user has no permissions to run the 'watch' command\r\n");
    rig.answer(0, &format!("${}\r\n{token}\r\n", token.len()));
    assert_eq!(rig.waiting(0), JOB, "nothing was deleted, nothing is done");
    assert_eq!(rig.engine.slots_in_use(), 2);
}

#[test]
fn a_release_stays_behind_its_waiting_set_though_the_node_offers_better_now() {
    let mut rig = rig();
    let (held, _) = lease(&mut rig, "a");
    rig.engine.release_quietly(held, rig.now);
    let op = rig.acquire("a");
    assert_eq!(rig.waiting(0), JOB, "the SET waits behind the transaction");
    // As a greeting on the same connection leaves it, at the end of a quarantine.
    rig.engine.nodes[0].dialect.release = Some(ReleaseStep::DelEx);
    rig.engine.cancel(op, rig.now);
    assert_eq!(rig.waiting(0), JOB);
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "_\r\n");
    assert_eq!(rig.waiting(0), ["UNWATCH", "SET", "MULTI", "EXEC", "WATCH", "GET"]);
}

#[test]
fn sets_beyond_what_may_wait_for_a_node_fail_their_vote_and_write_nothing() {
    const LEN_MAX: usize = 1 << 20;
    let mut rig = rig();
    let key = "k".repeat(KEY_LEN_MAX);
    let (held, token) = lease(&mut rig, &key);
    rig.engine.release_quietly(held, rig.now);
    let attempts = 2 * LEN_MAX / KEY_LEN_MAX;
    for _ in 0..attempts {
        rig.acquire(&key);
    }
    let mut failed = 0;
    while let Some(result) = rig.lock_result() {
        assert_eq!(vote_of(&result.unwrap_err(), 0), Vote::Failed(Cause::Backlog));
        failed += 1;
    }
    assert!((attempts / 2..attempts).contains(&failed), "{failed} of {attempts}");
    prove(&mut rig);
    rig.answer(0, "+OK\r\n");
    // The SETs behind it go out all at once.
    rig.inbox[0].remove(0);
    rig.receive(0, &bulk(&token));
    assert!(rig.engine.output(node(0)).len() <= LEN_MAX + 4 * KEY_LEN_MAX);
    let sent = rig.waiting(0).iter().filter(|name| *name == "SET").count();
    assert_eq!(sent, attempts - failed);
}

/// Without MULTI the server would delete, or write, at once what another may hold by then.
#[test]
fn where_multi_is_refused_nothing_is_deleted_and_nothing_is_written() {
    let refused = "-NOPERM this user has no permissions to run the 'multi' command\r\n";
    for is_release in [true, false] {
        let mut rig = rig();
        let (lease, token) = lease(&mut rig, "a");
        if is_release {
            rig.engine.release_quietly(lease, rig.now);
        } else {
            rig.engine.extend(lease, TTL, rig.now).unwrap();
        }
        for answer in [refused, "-ERR EXEC without MULTI\r\n", "+OK\r\n", &bulk(&token)] {
            rig.answer(0, answer);
        }
        rig.collect();
        let is_write = |command: &Vec<String>| matches!(&*command[0], "DEL" | "SET" | "MULTI");
        assert!(!rig.inbox[0].iter().any(is_write), "{:?}", rig.inbox[0]);
    }
}

/// Where UNWATCH is not allowed, the key of the job before is watched until the next EXEC.
#[test]
fn a_transaction_that_an_older_watch_ends_shows_that_there_are_transactions() {
    let mut rig = rig();
    let (lease, token) = lease(&mut rig, "a");
    rig.engine.release_quietly(lease, rig.now);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, "_\r\n");
    rig.answer(0, "+OK\r\n");
    rig.answer(0, &bulk(&token));
    assert_eq!(rig.waiting(0), ["MULTI", "DEL", "EXEC"]);
}
