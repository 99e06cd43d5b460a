//! Admission and the restart guard as tables; conversations that go wrong.

use std::time::Duration;

use super::admission::{History, OLD_MASTER_GRANTS_MS, Standing};
use super::pending::GreetingPart;
use super::*;
use crate::guards::{Admission, FailoverGuard, RestartGuard};

pub(super) const S: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_secs(30);

pub(super) const RULES: AdmissionRules = AdmissionRules {
    guard: RestartGuard::On,
    guard_time: GUARD,
    old_master_grants: Duration::from_millis(OLD_MASTER_GRANTS_MS),
    failover_guard: FailoverGuard::On,
    admission: Admission::Strict,
};

/// Seconds on the test's clock.
pub(super) fn at(seconds: u64) -> Instant {
    Instant::from_nanos((1_000 + seconds) * 1_000_000_000)
}

/// A master with this identity and age.
pub(super) fn master(run_id: &str, uptime_s: u64) -> Facts {
    Facts {
        run_id: Some(run_id.into()),
        replid: Some(format!("r{run_id}")),
        replicas: Some(0),
        uptime_s: Some(uptime_s),
        role: Some("master".into()),
        mode: Some("standalone".into()),
        maxmemory_policy: Some("noeviction".into()),
        ..Facts::default()
    }
}

pub(super) fn admit(history: &mut History, facts: &Facts, now: Instant) -> Standing {
    history.admit(facts, &RULES, |_| false, now)
}

pub(super) fn until(now: Instant) -> Standing {
    Standing::Quarantined { until: now }
}

#[test]
pub(crate) fn an_old_node_met_for_the_first_time_is_admitted_and_a_young_one_waits() {
    for (uptime, standing) in [
        (3600, Standing::Admitted),
        (31, Standing::Admitted),
        // The field may read a second too much, so 30 counts as 29.
        (30, until(at(1))),
        (1, until(at(30))),
        (0, until(at(30))),
    ] {
        let mut history = History::default();
        assert_eq!(admit(&mut history, &master("a", uptime), at(0)), standing, "{uptime}");
    }
}

#[test]
fn a_young_machine_does_not_make_an_old_node_of_a_young_one() {
    let mut history = History::default();
    let boot = Instant::from_nanos(10_000_000_000);
    assert_eq!(admit(&mut history, &master("a", 20), boot), until(boot + 11 * S));
}

#[test]
fn a_blip_changes_nothing() {
    let mut history = History::default();
    admit(&mut history, &master("a", 3600), at(0));
    assert_eq!(admit(&mut history, &master("a", 3601), at(1)), Standing::Admitted);
}

#[test]
fn a_blip_during_quarantine_does_not_end_it() {
    let mut history = History::default();
    assert_eq!(admit(&mut history, &master("a", 1), at(0)), until(at(30)));
    // The age that the node itself reports by then does not matter.
    assert_eq!(admit(&mut history, &master("a", 5000), at(10)), until(at(30)));
    assert_eq!(admit(&mut history, &master("a", 31), at(30)), Standing::Admitted);
}

#[test]
fn a_new_incarnation_waits_from_the_last_answer_of_the_old_one_however_old_it_says_it_is() {
    let mut history = History::default();
    admit(&mut history, &master("a", 3600), at(0));
    history.last_answer = at(8);
    assert_eq!(admit(&mut history, &master("b", 3600), at(10)), until(at(38)));
    let mut history = History::default();
    admit(&mut history, &master("a", 3600), at(0));
    history.last_answer = at(8);
    assert_eq!(admit(&mut history, &master("b", 1), at(10)), until(at(40)));
}

#[test]
fn a_node_that_was_a_replica_for_a_moment_is_a_new_incarnation() {
    let mut history = History::default();
    admit(&mut history, &master("a", 3600), at(0));
    history.last_answer = at(5);
    let mut promoted = master("a", 3700);
    promoted.replid = Some("another".into());
    assert_eq!(admit(&mut history, &promoted, at(50)), until(at(80)));
    assert_eq!(admit(&mut history, &promoted, at(60)), until(at(80)));
}

#[test]
fn a_node_first_met_as_a_replica_is_not_believed_at_once_when_it_is_a_master_again() {
    let mut history = History::default();
    let mut replica = master("a", 3600);
    replica.role = Some("slave".into());
    assert_eq!(admit(&mut history, &replica, at(0)), Standing::Refused(Cause::Replica));
    assert_eq!(admit(&mut history, &master("a", 3610), at(10)), until(at(30)));
    let mut promoted = master("a", 3611);
    promoted.replid = Some("another".into());
    assert_eq!(admit(&mut history, &promoted, at(11)), until(at(41)));
}

#[test]
fn an_answer_that_no_master_gives_starts_the_wait_anew() {
    let mut history = History::default();
    admit(&mut history, &master("a", 3600), at(0));
    history.distrust(&RULES, at(10));
    history.distrust(&RULES, at(20));
    assert_eq!(admit(&mut history, &master("a", 3620), at(21)), until(at(50)));
}

#[test]
fn without_the_guard_a_restart_is_no_reason_to_wait() {
    let rules = AdmissionRules { guard: RestartGuard::Off, ..RULES };
    let mut history = History::default();
    assert_eq!(history.admit(&master("a", 0), &rules, |_| false, at(0)), Standing::Admitted);
}

#[test]
fn denied_info_is_refused_or_believed_once_where_lenient() {
    let silent = Facts { info_denied: true, role: Some("master".into()), ..Facts::default() };
    let mut history = History::default();
    assert_eq!(admit(&mut history, &silent, at(0)), Standing::Refused(Cause::InfoDenied));
    let rules = AdmissionRules { admission: Admission::Lenient, ..RULES };
    assert_eq!(history.admit(&silent, &rules, |_| false, at(0)), Standing::Admitted);
    // Later it may be another process: the client cannot tell.
    history.last_answer = at(3);
    assert_eq!(history.admit(&silent, &rules, |_| false, at(4)), until(at(34)));
}

#[test]
fn a_node_that_does_not_say_its_age_waits_as_if_it_had_just_restarted() {
    let ageless = Facts { uptime_s: None, ..master("a", 0) };
    let mut history = History::default();
    assert_eq!(admit(&mut history, &ageless, at(0)), until(at(30)));
    let rules = AdmissionRules { admission: Admission::Lenient, ..RULES };
    let mut history = History::default();
    assert_eq!(history.admit(&ageless, &rules, |_| false, at(0)), Standing::Admitted);
}

#[test]
fn a_node_that_does_not_say_which_process_it_is_waits_behind_each_new_connection() {
    let nameless = Facts { run_id: None, ..master("a", 3600) };
    let mut history = History::default();
    assert_eq!(admit(&mut history, &nameless, at(0)), Standing::Admitted);
    history.last_answer = at(3);
    assert_eq!(admit(&mut history, &nameless, at(4)), until(at(33)));
    history.last_answer = at(40);
    let again = Facts { is_again: true, ..nameless };
    assert_eq!(admit(&mut history, &again, at(41)), Standing::Admitted);
}

#[test]
fn what_cannot_hold_locks_is_refused_with_its_reason() {
    let set = |change: fn(&mut Facts)| {
        let mut facts = master("a", 3600);
        change(&mut facts);
        facts
    };
    let table = [
        (set(|facts| facts.role = Some("slave".into())), Cause::Replica),
        (set(|facts| facts.role = Some("active-replica".into())), Cause::Replica),
        (set(|facts| facts.mode = Some("cluster".into())), Cause::Cluster),
        (set(|facts| facts.mode = Some("sentinel".into())), Cause::Sentinel),
        (set(|facts| facts.maxmemory_policy = Some("volatile-ttl".into())), Cause::Eviction),
        (set(|facts| facts.loading = true), Cause::Loading),
        (set(|facts| facts.fault = Some(Cause::Credentials)), Cause::Credentials),
    ];
    for (facts, cause) in table {
        let mut history = History::default();
        assert_eq!(admit(&mut history, &facts, at(0)), Standing::Refused(cause));
    }
    let mut history = History::default();
    let standing = history.admit(&master("a", 3600), &RULES, |identity| identity == "a", at(0));
    assert_eq!(standing, Standing::Refused(Cause::Duplicate));
}

// ---- the conversation ----

pub(super) fn now(seconds: u64) -> Now {
    Now { real: at(seconds), attended: at(seconds) }
}

pub(super) fn new_node(login: Login) -> Node {
    let timeouts = Timeouts { connect_timeout: S, stalled_after: S / 10 };
    Node::new(login, timeouts, at(0))
}

/// Feeds bytes until there is a step to report, or all bytes are read.
pub(super) fn feed(node: &mut Node, mut bytes: &[u8]) -> Result<bool, Cause> {
    loop {
        match node.next_step(&mut bytes, now(0))? {
            Step::Idle => return Ok(false),
            Step::Greeted => return Ok(true),
            Step::Answered(..) | Step::Query(_) | Step::Waited(_) | Step::Message => {}
        }
    }
}

pub(super) fn info(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

pub(super) fn sent(node: &mut Node) -> String {
    let text = String::from_utf8_lossy(node.output()).replace("\r\n", " ");
    node.output_taken(node.output().len());
    text
}

#[test]
fn the_greeting_is_one_write_with_the_login_first() {
    let login = Login {
        username: Some("ann".into()),
        password: Some("pw".into()),
        client_name: Some("me".into()),
        database: 3,
        channel: None,
    };
    let mut node = new_node(login);
    node.handle_connected(now(0));
    let text = sent(&mut node);
    assert!(
        text.starts_with(
            "*7 $5 HELLO $1 3 $4 AUTH $3 ann $2 pw $7 SETNAME $2 me *2 $6 SELECT $1 3 *2 $4 INFO"
        ),
        "{text}"
    );
}

#[test]
fn a_server_without_hello_is_greeted_again_in_resp2() {
    let login = Login { password: Some("pw".into()), ..Login::default() };
    let mut node = new_node(login);
    node.handle_connected(now(0));
    sent(&mut node);
    let denied = "-NOAUTH Authentication required.\r\n".repeat(4);
    let greeted = feed(&mut node, format!("-ERR unknown command 'HELLO'\r\n{denied}").as_bytes());
    assert_eq!(greeted, Ok(true));
    assert!(!conclude(&mut node, 0));
    assert!(sent(&mut node).starts_with("*2 $4 AUTH $2 pw *2 $4 INFO $6 server"));
    let server = info("redis_version:5.0.14\r\nrun_id:x\r\nuptime_in_seconds:99");
    let answers = format!(
        "+OK\r\n{server}{}{}{}",
        info(""),
        info("loading:0"),
        info("role:master\r\nconnected_slaves:0")
    );
    assert_eq!(feed(&mut node, answers.as_bytes()), Ok(true));
    assert!(!conclude(&mut node, 0), "it has to release by scripts");
    assert_eq!(sent(&mut node), "*3 $4 EVAL $8 return 1 $1 0 ");
    assert_eq!(feed(&mut node, b":1\r\n"), Ok(true));
    assert!(conclude(&mut node, 0));
    assert!(matches!(node.state(), State::Admitted { .. }));
    assert_eq!(node.dialect.to_string(), "EVAL / EVAL");
    assert!(!node.facts().resp3);
}

#[test]
fn wrong_credentials_are_refused_and_asked_about_again_later() {
    let mut node = new_node(Login { password: Some("no".into()), ..Login::default() });
    node.handle_connected(now(0));
    let denied = "-NOAUTH Authentication required.\r\n".repeat(4);
    feed(&mut node, format!("-WRONGPASS invalid\r\n{denied}").as_bytes()).unwrap();
    node.conclude_greeting(&RULES, |_| false, now(0));
    assert_eq!(node.cause(), Cause::Credentials);
    // An answer to an owed release does not postpone the retry.
    node.refuse(Cause::Credentials, at(4));
    assert_eq!(node.handle_timeout(now(4)), None);
    assert_eq!(node.handle_timeout(now(5)), Some(Cause::Credentials));
}

#[test]
fn a_server_that_is_full_says_so_even_as_it_closes() {
    let mut node = new_node(Login::default());
    node.handle_connected(now(0));
    assert_eq!(feed(&mut node, b"-ERR max number of clients reached\r\n"), Ok(false));
    node.handle_lost(Cause::Closed, 0, at(0));
    assert_eq!(node.cause(), Cause::TooManyClients);
}

#[test]
fn a_greeting_that_never_ends_is_given_up() {
    let mut node = new_node(Login::default());
    node.handle_connected(now(0));
    assert_eq!(node.handle_timeout(now(0)), None);
    assert_eq!(node.handle_timeout(now(1)), Some(Cause::ConnectTimeout));
}

/// The server knows no HELLO, so that the client greets it twice.
#[test]
fn a_connection_and_all_of_its_greeting_have_one_connect_timeout_together() {
    let mut node = new_node(Login::default());
    assert_eq!(node.handle_timeout(now(0)), None);
    let late = at(0) + S - S / 10;
    node.handle_connected(Now { real: late, attended: late });
    assert_eq!(node.next_timeout(Duration::ZERO), at(1));
    let answers = format!("-ERR unknown command 'HELLO'\r\n{}", info("").repeat(4));
    assert_eq!(feed(&mut node, answers.as_bytes()), Ok(true));
    assert!(!node.conclude_greeting(&RULES, |_| false, Now { real: late, attended: late }));
    assert_eq!(node.handle_timeout(Now { real: late, attended: late }), None);
    assert_eq!(node.handle_timeout(now(1)), Some(Cause::ConnectTimeout));
}

#[test]
fn bytes_that_are_not_resp_end_the_connection_and_hand_back_what_was_pending() {
    let mut node = new_node(Login::default());
    node.handle_connected(now(0));
    assert_eq!(feed(&mut node, b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(Cause::Protocol));
    let pending = node.handle_lost(Cause::Protocol, 0, at(0));
    assert_eq!(pending.len(), 5);
    assert!(node.output().is_empty());
}

#[test]
fn the_end_of_a_quarantine_is_a_new_greeting_without_the_login() {
    let mut node = new_node(Login { password: Some("pw".into()), ..Login::default() });
    node.handle_connected(now(0));
    sent(&mut node);
    let answers = greeting(VALKEY_91, "run_id:x\r\nuptime_in_seconds:1", "role:master");
    feed(&mut node, answers.as_bytes()).unwrap();
    assert!(conclude(&mut node, 0));
    assert!(matches!(node.state(), State::Quarantined { .. }));
    assert!(!node.can_vote());
    sent(&mut node);
    node.handle_timeout(now(30));
    assert!(sent(&mut node).starts_with("*2 $5 HELLO $1 3 *2 $4 INFO"));
    let answers = greeting(VALKEY_91, "run_id:x\r\nuptime_in_seconds:31", "role:master");
    feed(&mut node, answers.as_bytes()).unwrap();
    assert!(conclude(&mut node, 30));
    assert!(node.can_vote());
}

#[test]
fn a_node_that_does_not_say_who_it_is_votes_again_when_its_quarantine_is_over() {
    let lenient = AdmissionRules { admission: Admission::Lenient, ..RULES };
    let denied = "-NOPERM User default has no permissions to run the 'info' command\r\n".repeat(4);
    let answers = format!("%4\r\n{VALKEY_91}+proto\r\n:3\r\n{denied}");
    let greet = |node: &mut Node, seconds| {
        sent(node);
        feed(node, answers.as_bytes()).unwrap();
        assert!(node.conclude_greeting(&lenient, |_| false, now(seconds)));
    };
    let mut node = new_node(Login::default());
    node.handle_connected(now(0));
    greet(&mut node, 0);
    assert!(node.can_vote());
    node.handle_lost(Cause::Closed, 0, at(1));
    node.handle_connected(now(1));
    greet(&mut node, 1);
    assert!(!node.can_vote(), "it may be another process");
    node.handle_timeout(now(31));
    greet(&mut node, 31);
    assert!(node.can_vote(), "the same connection is the same process");
}

pub(super) const VALKEY_91: &str =
    "+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+role\r\n+master\r\n";
const REDIS_70: &str = "+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+role\r\n+master\r\n";

/// The answers to a greeting.
pub(super) fn greeting(hello: &str, server: &str, replication: &str) -> String {
    let replication = &format!("connected_slaves:0\r\n{replication}");
    let infos = [server, "", "", replication].map(info).concat();
    format!("%4\r\n{hello}+proto\r\n:3\r\n{infos}")
}

pub(super) fn conclude(node: &mut Node, seconds: u64) -> bool {
    node.conclude_greeting(&RULES, |_| false, now(seconds))
}

/// A node that was connected and has answered the first write of its greeting.
fn greeted(hello: &str, replication: &str) -> Node {
    let mut node = new_node(Login::default());
    greet_again(&mut node, hello, replication, 0);
    node
}

#[test]
fn a_node_that_is_busy_when_it_is_greeted_again_may_still_tell_of_transfers() {
    let mut node = new_node(Login::default());
    node.handle_connected(now(0));
    let young = greeting(VALKEY_91, "run_id:x\r\nuptime_in_seconds:1", "role:master");
    feed(&mut node, young.as_bytes()).unwrap();
    assert!(conclude(&mut node, 0));
    let mark = node.mark();
    node.handle_timeout(now(30));
    let refused = "-BUSY Redis is busy running a script.\r\n".repeat(4);
    feed(&mut node, format!("%4\r\n{VALKEY_91}+proto\r\n:3\r\n{refused}").as_bytes()).unwrap();
    assert!(conclude(&mut node, 30));
    assert_eq!((node.cause(), node.mark()), (Cause::Busy, mark));
    node.handle_lost(Cause::Closed, 0, at(31));
    assert_eq!(node.mark(), None, "another process may be there");
}

fn greet_again(node: &mut Node, hello: &str, replication: &str, seconds: u64) {
    node.handle_connected(now(seconds));
    sent(node);
    let answers = greeting(hello, "run_id:x\r\nuptime_in_seconds:9999", replication);
    assert_eq!(feed(node, answers.as_bytes()), Ok(true));
}

#[test]
fn a_node_that_says_it_is_a_replica_is_no_master_in_the_same_greeting() {
    let hello = VALKEY_91.replace("+master", "+replica");
    let mut node = greeted(&hello, "role:master");
    assert!(conclude(&mut node, 0));
    assert_eq!(node.cause(), Cause::Replica);
    // After another greeting it votes only once it has been a master for long enough.
    node.handle_lost(Cause::Closed, 0, at(1));
    greet_again(&mut node, VALKEY_91, "role:master", 5);
    assert!(conclude(&mut node, 5));
    assert_eq!(node.state(), State::Quarantined { until: at(30) });
}

const PROMOTED: &str = "role:master\r\nmaster_replid:ab12\r\nmaster_replid2:cd34";
const MARK: &str = "*6 $3 SET $18 redbolt:since:ab12 $1 1 $2 NX $2 PX $10 2592000000 \
                    *2 $4 PTTL $18 redbolt:since:ab12 ";

/// The answer for a marker that was set this many seconds ago.
fn marked(seconds: u64) -> String {
    format!("_\r\n:{}\r\n", 2_592_000_000 - seconds * 1000)
}

#[test]
fn a_master_that_may_have_been_a_replica_a_moment_ago_waits_from_when_it_was_first_met() {
    let until = |at| State::Quarantined { until: at };
    let moment = Duration::from_millis(2);
    let table = [
        ("+OK\r\n:2592000000\r\n".to_owned(), until(at(30))),
        (marked(10), until(at(20) + moment)),
        (marked(31), State::Admitted { since: at(0) }),
        // The user may not write the marker, or no Redbolt client wrote it.
        ("-NOPERM no\r\n:-2\r\n".to_owned(), until(at(30))),
        ("-NOPERM no\r\n-NOPERM no\r\n".to_owned(), until(at(30))),
        ("_\r\n:-1\r\n".to_owned(), until(at(30))),
        ("_\r\n:2592000001\r\n".to_owned(), until(at(30))),
    ];
    for (answers, state) in table {
        let mut node = greeted(VALKEY_91, PROMOTED);
        assert!(!conclude(&mut node, 0));
        assert_eq!(sent(&mut node), MARK);
        assert_eq!(feed(&mut node, answers.as_bytes()), Ok(true));
        assert!(conclude(&mut node, 0));
        assert_eq!(node.state(), state, "{answers:?}");
    }
}

#[test]
pub(crate) fn a_master_that_becomes_a_replica_during_its_greeting_is_not_believed() {
    for answers in [
        "-READONLY You can't write against a read only replica.\r\n:2591960000\r\n",
        "_\r\n-MASTERDOWN Link with MASTER is down\r\n",
    ] {
        let mut node = greeted(VALKEY_91, PROMOTED);
        assert!(!conclude(&mut node, 0));
        feed(&mut node, answers.as_bytes()).unwrap();
        assert!(conclude(&mut node, 0));
        assert!(matches!(node.cause(), Cause::Replica | Cause::MasterDown));
        // The node is a master again, with the same ids and an old marker: the client did not see
        // the promotion.
        node.handle_lost(Cause::Closed, 0, at(1));
        greet_again(&mut node, VALKEY_91, PROMOTED, 5);
        assert!(!conclude(&mut node, 5));
        feed(&mut node, marked(3600).as_bytes()).unwrap();
        assert!(conclude(&mut node, 5));
        assert_eq!(node.state(), State::Quarantined { until: at(30) });
    }
}

#[test]
fn a_plain_master_is_admitted_by_one_write() {
    let zeros = format!("role:master\r\nmaster_replid:ab12\r\nmaster_replid2:{}", "0".repeat(40));
    let mut node = greeted(VALKEY_91, &zeros);
    assert!(conclude(&mut node, 0) && node.can_vote());
    assert!(!sent(&mut node).contains("since"));
}

#[test]
fn a_user_who_may_release_in_no_way_is_refused_before_anything_is_locked() {
    let mut node = greeted(REDIS_70, "role:master");
    assert!(!conclude(&mut node, 0));
    assert_eq!(sent(&mut node), "*3 $4 EVAL $8 return 1 $1 0 ");
    let denied = "-NOPERM this user has no permissions to run the 'eval' command\r\n";
    feed(&mut node, denied.as_bytes()).unwrap();
    assert!(conclude(&mut node, 0));
    assert_eq!(node.cause(), Cause::NoDialect);
}

#[test]
fn a_user_who_was_denied_every_way_of_release_is_asked_for_each_before_the_node_votes_again() {
    let mut node = greeted(VALKEY_91, "role:master");
    assert!(conclude(&mut node, 0) && node.can_vote());
    node.refuse(Cause::NoDialect, at(1));
    node.handle_lost(Cause::NoDialect, 0, at(1));
    greet_again(&mut node, VALKEY_91, "role:master", 6);
    assert!(!conclude(&mut node, 6));
    let denied = "-NOPERM this user has no permissions to run the 'x' command\r\n";
    for asked in [
        "*3 $7 DELIFEQ $14 redbolt:nobody $1 - ",
        "*4 $5 DELEX $14 redbolt:nobody $4 IFEQ $1 - ",
        "*3 $4 EVAL $8 return 1 $1 0 ",
    ] {
        assert!(matches!(node.state(), State::Greeting { .. }));
        assert_eq!(sent(&mut node), asked);
        feed(&mut node, denied.as_bytes()).unwrap();
        conclude(&mut node, 6);
    }
    assert_eq!(node.cause(), Cause::NoDialect);
    // The user may run one of the steps now; a denial of the key tells nothing about the command.
    node.handle_lost(Cause::NoDialect, 0, at(7));
    greet_again(&mut node, VALKEY_91, "role:master", 11);
    conclude(&mut node, 11);
    feed(&mut node, b"-NOPERM No permissions to access a key\r\n").unwrap();
    assert!(conclude(&mut node, 11) && node.can_vote());
    // The step is proven, and is not tried again.
    node.handle_lost(Cause::Closed, 0, at(12));
    greet_again(&mut node, VALKEY_91, "role:master", 13);
    assert!(conclude(&mut node, 13) && node.can_vote());
}

#[test]
fn what_a_server_says_of_itself_is_kept_as_plain_words() {
    let hostile = "\u{1b}[31m9.1.2\u{7}";
    let mut facts = Facts::default();
    for part in ["version", "role"] {
        let hello = format!("%1\r\n+{part}\r\n${}\r\n{hostile}\r\n", hostile.len());
        let mut decoder = Decoder::new(Limits::default());
        let frame = decoder.frame(hello.as_bytes()).unwrap().unwrap();
        facts.note(GreetingPart::Hello, &frame.reply());
    }
    assert_eq!((facts.version.as_str(), facts.role.as_deref()), ("31m9.1.2", Some("31m9.1.2")));
    let info = format!("run_id:{}\u{1b}]0;x\u{7}\r\nrole:master\r\n", "a".repeat(100));
    let bulk = format!("${}\r\n{info}\r\n", info.len());
    let mut decoder = Decoder::new(Limits::default());
    let frame = decoder.frame(bulk.as_bytes()).unwrap().unwrap();
    facts.note(GreetingPart::InfoServer, &frame.reply());
    assert_eq!(facts.run_id.as_deref(), Some(&*"a".repeat(64)));
    assert_eq!(facts.role.as_deref(), Some("31m9.1.2"), "no master, whatever it says later");
}

/// A server that runs a long script answers HELLO, and refuses SELECT.
#[test]
fn a_node_that_was_too_busy_to_select_its_database_gets_no_command_for_keys() {
    let mut node = new_node(Login { database: 3, ..Login::default() });
    node.handle_connected(now(0));
    let busy = "-BUSY Redis is busy running a script.\r\n".repeat(5);
    let answers = format!("%4\r\n{VALKEY_91}+proto\r\n:3\r\n{busy}");
    assert_eq!(feed(&mut node, answers.as_bytes()), Ok(true));
    assert!(conclude(&mut node, 0));
    assert_eq!(node.cause(), Cause::Busy);
    assert!(node.is_connected() && !node.is_greeted(), "it would reach the keys of database 0");
}
