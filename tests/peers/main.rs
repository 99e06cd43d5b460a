//! Redbolt and other Redlock clients on the same keys of the same nodes: each keeps the other out.
//!
//! The other clients themselves run, each in the program that the benches use too. `tests/run
//! peers` builds them; the tests of a client that was not built are skipped by name.

mod program;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

#[cfg(feature = "metrics")]
use metrics_util::CompositeKey;
#[cfg(feature = "metrics")]
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use redbolt::{Client, Config, Guard, LockError, RestartGuard, UnlockError, Unlocked};
use redbolt_rig::{Cluster, PATIENCE, StopAtEnd, TTL, eventually, ms, now, timed};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use self::program::{Program, is_built};

/// The TTL of locks that must not end during a test, in milliseconds.
const LONG: u32 = 20_000;
/// The TTL of locks that are left to end.
const SHORT: u32 = 1_000;

const KEY: &str = "shared-key";

/// Three nodes of different kinds, another client of them, and Redbolt.
struct Beside {
    cluster: Cluster,
    other: Program,
    redbolt: Client,
    /// The name of the key on the nodes.
    key: String,
}

impl Beside {
    fn start(name: &'static str) -> Option<Self> {
        if !is_built(name) {
            return None;
        }
        let cluster = Cluster::mixed(3)?;
        let other = Program::start(name, &cluster);
        let redbolt = Client::connect(config(&cluster)).expect("fresh servers are admitted");
        let key = other.on_nodes(KEY);
        Some(Self { cluster, other, redbolt, key })
    }

    /// Takes the lock for Redbolt, and waits for it: some clients return before the last node has
    /// answered their release.
    fn wins_soon(&self) -> Guard {
        self.redbolt.lock(&self.key, TTL).wait().expect("the lock is released, or ends")
    }

    /// The time that the key has left, for each node.
    fn left(&self) -> Vec<i64> {
        self.cluster.nodes().map(|node| node.pttl(&self.key)).collect()
    }
}

#[track_caller]
fn taken(result: Result<Guard, LockError>) {
    assert!(matches!(result, Err(LockError::Taken(_))), "not taken: {result:?}");
}

fn locks_exclude_each_other(name: &'static str) {
    let Some(mut both) = Beside::start(name) else { return };

    assert!(both.other.try_lock(KEY, LONG), "a free lock");
    taken(both.redbolt.try_lock(&both.key, TTL).wait());
    both.other.unlock(KEY);

    let lease = both.wins_soon();
    assert!(!both.other.try_lock(KEY, LONG), "{name} won what Redbolt holds");
    assert!(lease.is_valid());
    unlock(lease);

    both.other.lock(KEY, LONG);
    taken(both.redbolt.try_lock(&both.key, TTL).wait());
    // Redbolt waits now, and finds the lock free when the other client lets go of it.
    thread::scope(|scope| {
        let (redbolt, key) = (&both.redbolt, &both.key);
        let waiting = scope.spawn(move || redbolt.lock(key, TTL).wait());
        both.other.unlock(KEY);
        let lease = waiting.join().expect("a call that ends").expect("the lock is free again");
        assert!(lease.is_valid());
    });
}

fn extensions_and_ends_are_seen_by_the_other(name: &'static str) {
    let Some(mut both) = Beside::start(name) else { return };

    // The other client extends its lock, and so keeps Redbolt out for longer.
    assert!(both.other.try_lock(KEY, LONG));
    let is_older = |left: &i64| *left < i64::from(LONG) - 2_000;
    assert!(eventually(PATIENCE, || both.left().iter().all(is_older)));
    let before = both.left();
    if let Some(is_extended) = both.other.extend(KEY, LONG) {
        assert!(is_extended, "{name} extends its own lock");
        let grown =
            both.left().iter().zip(&before).filter(|(after, before)| after > before).count();
        assert!(grown >= 2, "{before:?}");
    }
    taken(both.redbolt.try_lock(&both.key, TTL).wait());
    both.other.unlock(KEY);

    // Redbolt extends its lock, and so keeps the other client out.
    let mut lease = both.redbolt.lock(&both.key, ms(u64::from(SHORT))).wait().expect("a free lock");
    lease.extend(TTL).wait().expect("the lease is alive");
    assert!(eventually(PATIENCE, || lease.remaining() < TTL - ms(u64::from(SHORT))));
    assert!(!both.other.try_lock(KEY, LONG), "{name} won what Redbolt has extended");
    unlock(lease);

    // The other client's lock ends by itself. The commands that it still sends leave Redbolt's lock
    // alone.
    assert!(both.other.try_lock(KEY, SHORT));
    let mut lease = both.wins_soon();
    assert_ne!(both.other.extend(KEY, SHORT), Some(true), "{name} extended what had ended");
    both.other.unlock(KEY);
    lease.extend(TTL).wait().expect("nobody touched it");
    assert!(both.cluster.holders(&both.key) >= 2);

    // The other way round: Redbolt's lock ends by itself.
    unlock(lease);
    let mut lease =
        both.redbolt.try_lock(&both.key, ms(u64::from(SHORT))).wait().expect("a free lock");
    let (key, token) = (lease.key().to_vec(), lease.detach().wait().expect("it is settled"));
    both.other.lock(KEY, LONG);
    assert_eq!(both.redbolt.unlock_token(&key, token).wait(), Err(UnlockError::NotHeld));
    taken(both.redbolt.try_lock(&key, TTL).wait());
    both.other.unlock(KEY);
}

fn config(cluster: &Cluster) -> Config {
    let config = Config::new(cluster.urls()).expect("addresses of servers");
    config.restart_guard(RestartGuard::Off).node_timeout(ms(2_000))
}

/// Releases a lock that Redbolt holds.
#[track_caller]
fn unlock(lease: Guard) {
    assert_eq!(lease.unlock().wait().expect("a lease of its own"), Unlocked::Released);
}

/// Nanoseconds of the clock that all programs share.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |part: i64| u64::try_from(part).expect("a clock that counts up from zero");
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// A time in which a client held the lock, and that client's name.
type Held = (u64, u64, &'static str);

/// Redbolt's turns: it pauses between them, because the other clients look only now and then.
fn turns(client: Client, key: &str, until: u64) -> Vec<Held> {
    let mut held = Vec::new();
    while monotonic() < until {
        match client.lock(key, TTL).wait() {
            Ok(lease) => {
                let from = monotonic();
                thread::sleep(ms(3));
                held.push((from, monotonic(), "redbolt"));
                unlock(lease);
                thread::sleep(ms(20));
            }
            Err(LockError::Taken(_) | LockError::NoQuorum(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    held
}

fn contenders_never_hold_it_together(name: &'static str) {
    const TIME: u64 = 3_000;
    let Some(Beside { cluster, mut other, redbolt, key }) = Beside::start(name) else { return };
    let mut second = Program::start(name, &cluster);
    for program in [&mut other, &mut second] {
        program.say(&format!("hold {KEY} {LONG} 3 {TIME}"));
    }
    let mut held = turns(redbolt, &key, monotonic() + TIME * 1_000_000);
    assert!(!held.is_empty(), "Redbolt had no turn");
    let ours = held.len();
    for program in [&mut other, &mut second] {
        let answer = program.answer();
        let spans = answer.get("held").and_then(Value::as_array).expect("a list");
        let time = |time: &Value| time.as_u64().expect("a time");
        held.extend(
            spans
                .iter()
                .filter_map(|span| Some((span.get(0).map(time)?, span.get(1).map(time)?, name))),
        );
    }
    assert!(held.len() > ours, "{name} had no turn beside {ours} of Redbolt's");
    held.sort_unstable();
    for (before, after) in held.iter().zip(held.iter().skip(1)) {
        assert!(before.1 <= after.0, "two held the lock: {before:?}, {after:?}");
    }
}

macro_rules! clients {
    ($($module:ident $name:literal)*) => {$(
        mod $module {
            #[test]
            fn locks_exclude_each_other() {
                super::locks_exclude_each_other($name);
            }

            #[test]
            fn extensions_and_ends_are_seen_by_the_other() {
                super::extensions_and_ends_are_seen_by_the_other($name);
            }

            #[test]
            fn contenders_never_hold_it_together() {
                super::contenders_never_hold_it_together($name);
            }
        }
    )*};
}

clients! {
    redbolt_c "redbolt-c"
    redsync_redigo "redsync-redigo"
    redsync_goredis "redsync-goredis"
    redisson "redisson"
    node_redlock "node-redlock"
    pottery "pottery"
    redlock_py "redlock-py"
    rslock "rslock"
    redlock_rs "redlock-rs"
}

#[test]
fn redisson_keeps_a_hash_where_redbolt_keeps_a_string_and_neither_wins_the_others() {
    let Some(mut both) = Beside::start("redisson") else { return };
    assert!(both.other.try_lock(KEY, LONG));
    for node in both.cluster.nodes() {
        assert_eq!(node.command(&["TYPE", KEY]), b"+hash\r\n");
        // The node's answer to Redbolt's own SET.
        let set = node.command(&["SET", KEY, "token", "NX", "PX", "1000"]);
        assert_eq!(set, b"$-1\r\n");
    }
    // Redbolt's compare-and-delete leaves the hash alone.
    assert_ne!(both.redbolt.unlock_token(KEY, "token").wait(), Ok(Unlocked::Released));
    taken(both.redbolt.try_lock(KEY, TTL).wait());
    both.other.unlock(KEY);

    let lease = both.wins_soon();
    let before = both.cluster.values(KEY);
    assert!(!both.other.try_lock(KEY, LONG));
    assert_eq!(both.cluster.values(KEY), before, "it changed what is ours");
    unlock(lease);
}

/// Another client, as documented, beside eight clients of Redbolt that contend without a pause. It
/// does not queue. Its turn comes if it looks while the key is free, after the last of
/// `transfers_in_row` transfers.
/// `REDBOLT_BYSTANDER=20` takes 20 of its turns, and prints how long it waited for each.
#[test]
fn a_client_that_polls_gets_its_turn_among_eight_that_hand_the_lock_over() {
    const NAME: &str = "redsync-goredis";
    if !is_built(NAME) {
        return;
    }
    let Some(cluster) = Cluster::mixed(5) else { return };
    let wanted = std::env::var("REDBOLT_BYSTANDER").ok().and_then(|text| text.parse().ok());
    let wanted: u32 = wanted.unwrap_or(1);
    let mut other = Program::start(NAME, &cluster);
    let (is_over, all_turns) = (AtomicBool::new(false), AtomicU32::new(0));
    #[cfg(feature = "metrics")]
    let snapshots = {
        let recorder = DebuggingRecorder::new();
        let snapshots = recorder.snapshotter();
        recorder.install().expect("the only recorder");
        snapshots
    };
    // The other client waits for ever; the eight do not.
    let end = now() + 6 * PATIENCE * wanted;
    thread::scope(|scope| {
        let _end = StopAtEnd(&is_over);
        let contend = || {
            // 16 is also the default. The test sets it, because the test depends on it.
            let config = config(&cluster).transfers_in_row(16).client_name("eight");
            let client = Client::connect(config).expect("fresh servers are admitted");
            let mut turns = 0_u32;
            while !is_over.load(Ordering::Relaxed) && now() < end {
                if let Ok(lease) = client.lock(KEY, TTL).wait() {
                    turns += 1;
                    all_turns.fetch_add(1, Ordering::Relaxed);
                    unlock(lease);
                }
            }
            client.shutdown(PATIENCE).wait();
            turns
        };
        let eight: Vec<_> = (0..8).map(|_| scope.spawn(contend)).collect();
        let turn = |_| {
            // The eight clients hand the lock to each other again.
            let before = all_turns.load(Ordering::Relaxed);
            let goes_round = || all_turns.load(Ordering::Relaxed) > before + 100;
            assert!(eventually(PATIENCE, goes_round), "the eight make no turns");
            let ((), waited) = timed(|| other.lock(KEY, LONG));
            other.unlock(KEY);
            waited
        };
        let waited: Vec<_> = (0..wanted).map(turn).collect();
        assert!(now() < end, "it had to wait until the others ended: {waited:.1?}");
        is_over.store(true, Ordering::Relaxed);
        let turns: Vec<_> =
            eight.into_iter().map(|thread| thread.join().expect("no failed call")).collect();
        println!("{NAME} waited {waited:.1?}; Redbolt's turns: {turns:?}");
        assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
        #[cfg(feature = "metrics")]
        {
            let transfers = |(key, .., value): (CompositeKey, _, _, _)| {
                let has = |name, text| {
                    key.key().labels().any(|it| (it.key(), it.value()) == (name, text))
                };
                let is_ours = has("client", "eight") && has("by", "transfer");
                match value {
                    DebugValue::Counter(count) if is_ours => count,
                    _ => 0,
                }
            };
            let handed_over: u64 = snapshots.snapshot().into_vec().into_iter().map(transfers).sum();
            let all = u64::from(turns.iter().sum::<u32>());
            assert!(handed_over > all / 4, "{handed_over} of {all} turns were handed over");
        }
    });
}
