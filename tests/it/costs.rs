//! The costs of the client's calls: threads, wake-ups and writes, and the events that may hold a
//! call up.
//!
//! A process of its own makes the counted calls ([`counted`] runs in it), under strace; the nodes
//! stay here. The test compares two runs of different length: the difference belongs to the calls.

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;

use redbolt::{Client, Guard, IdleStrategy, LockError};
use redbolt_embedded::Nodes;

use super::client::{embedded, in_use, is_clean, patient};
use super::common::{PATIENCE, TTL, ends_within, eventually, fresh_config, ms, own_test, skip};

/// The variables that tell the counted process what to do.
const MODE: &str = "REDBOLT_COUNTED";
const NODES: &str = "REDBOLT_COUNTED_NODES";
const NODE_COUNT: usize = 3;

/// System calls of this many rounds in the mode, by the name that `named` gives to a line of
/// strace.
fn system_calls(
    mode: &str,
    rounds: usize,
    named: fn(&str) -> Option<&'static str>,
) -> Option<HashMap<&'static str, f64>> {
    let nodes = Nodes::start(NODE_COUNT).expect("ports are free");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = directory.path().join("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=sendto,sendmsg,writev,write,futex", "-o"]).arg(&log);
    let counted = own_test("costs::counted");
    command.arg(counted.get_program()).args(counted.get_args());
    let mode = format!("{mode} {rounds}");
    let output = match command.env(MODE, mode).env(NODES, nodes.urls().join(",")).output() {
        Ok(output) => output,
        Err(why) => {
            skip(&format!("strace cannot be run ({why})"), "install it with the package manager");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut counts = HashMap::new();
    let text = fs::read_to_string(&log).expect("strace wrote its log");
    for name in text.lines().filter(|line| !line.contains("resumed>")).filter_map(named) {
        *counts.entry(name).or_insert(0.0) += 1.0;
    }
    Some(counts)
}

/// Like [`system_calls`], but for one round: the difference of two lengths.
fn calls_a_round(
    mode: &str,
    named: fn(&str) -> Option<&'static str>,
) -> Option<HashMap<&'static str, f64>> {
    // So short that all of its calls, which it may spare by chance, are less than a twentieth of
    // the long run.
    const SHORT: usize = 10;
    const LONG: usize = 250;
    let before = system_calls(mode, SHORT, named)?;
    let mut counts = system_calls(mode, LONG, named)?;
    for (name, count) in &mut counts {
        *count -= before.get(name).unwrap_or(&0.0);
        *count /= f64::from(u32::try_from(LONG - SHORT).expect("it fits"));
    }
    println!("{mode}: {counts:?}");
    Some(counts)
}

#[test]
#[ignore = "the process that other tests start and count"]
fn counted() {
    let variable = |name| std::env::var(name).expect("set by the test that starts this process");
    let (mode, nodes) = (variable(MODE), variable(NODES));
    let (mode, rounds) = mode.split_once(' ').expect("a mode and a number");
    let rounds: usize = rounds.parse().expect("a number");
    let wait = if mode == "spin" { IdleStrategy::Spin } else { IdleStrategy::Park };
    let config = fresh_config(nodes.split(',').map(str::to_owned).collect());
    let shared = Client::connect(config.idle_strategy(wait)).expect("nodes are fit");
    match mode {
        "park" | "spin" => {
            for round in 0..rounds {
                let guard = shared.try_lock(format!("k:{round}"), TTL).wait().expect("a fresh key");
                guard.unlock().wait().expect("ours");
            }
        }
        "burst" => (0..rounds).for_each(|round| burst(&shared, round)),
        "threads" => {
            // The client's thread is here; so are the threads of the test and of the harness.
            let before = thread_count();
            let clones: Vec<_> = (0..100).map(|_| shared.clone()).collect();
            for (index, clone) in clones.iter().enumerate() {
                drop(clone.try_lock(format!("k:{index}"), TTL).wait().expect("a fresh key"));
            }
            assert_eq!(thread_count(), before, "a clone needs no thread");
            drop((clones, shared));
            assert!(eventually(PATIENCE, || thread_count() == before - 1), "one, and it ends");
        }
        other => panic!("no mode {other}"),
    }
}

fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").expect("Linux").count()
}

/// Wakes no task, and holds up the thread that calls it until it is opened.
#[derive(Default)]
struct Barrier {
    has_come: AtomicBool,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Barrier {
    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }
}

impl Wake for Barrier {
    fn wake(self: Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        let is_open = self.is_open.lock().expect("no panic");
        let opened = self.opened.wait_while(is_open, |is_open| !*is_open);
        drop(opened.expect("no panic"));
    }
}

/// The line that [`held_up`] writes for each lock that it took in vain.
const AGAIN: &str = "held up again";

type Locking<'shared> = Pin<Box<dyn Future<Output = Result<Guard, LockError>> + Send + 'shared>>;

/// The I/O thread is inside a foreign waker until the barrier is opened.
fn held_up<'shared>(shared: &'shared Client, key: &str) -> (Locking<'shared>, Arc<Barrier>) {
    for attempt in 0.. {
        let barrier = Arc::new(Barrier::default());
        let waker = Waker::from(Arc::clone(&barrier));
        let key = format!("{key}:{attempt}");
        let mut future: Locking<'_> = Box::pin(async move { shared.try_lock(key, TTL).await });
        // If this thread was kept from running, the lock is there before the future waits for it.
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            assert!(eventually(PATIENCE, || barrier.has_come.load(Ordering::Acquire)));
            return (future, barrier);
        }
        // This goes past the capture of a test's output, because the test counts it.
        std::io::stderr().write_all(AGAIN.as_bytes()).expect("a standard error");
    }
    unreachable!("it tries for ever");
}

/// Sixteen calls and the drops of their guards, each while the I/O thread is busy elsewhere.
fn burst(shared: &Client, round: usize) {
    let (first, barrier) = held_up(shared, &format!("first:{round}"));
    let mut futures: Vec<Locking<'_>> = (0..16)
        .map(|call| {
            let key = format!("k:{round}:{call}");
            Box::pin(async move { shared.try_lock(key, TTL).await }) as Locking<'_>
        })
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    for future in &mut futures {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    barrier.open();
    assert!(eventually(PATIENCE, || in_use(shared).0 == 17), "results wait to be taken");
    let guards: Vec<_> = futures
        .into_iter()
        .map(|mut future| {
            let mut result = None;
            assert!(eventually(PATIENCE, || {
                if let std::task::Poll::Ready(guard) = future.as_mut().poll(&mut context) {
                    result = Some(guard);
                }
                result.is_some()
            }));
            result.expect("it was awaited").expect("a fresh key")
        })
        .collect();
    drop(first);
    assert!(eventually(PATIENCE, || in_use(shared).1 == 16), "{shared:?}");
    let (last, barrier) = held_up(shared, &format!("last:{round}"));
    drop(guards);
    barrier.open();
    drop(last);
    assert!(eventually(PATIENCE, || in_use(shared) == (0, 0)), "{shared:?}");
}

/// A write to an eventfd (eight bytes), and a wake-up of a thread that sleeps.
fn hand_over(line: &str) -> Option<&'static str> {
    if line.contains("write(") && line.contains(", 8)") {
        Some("eventfd")
    } else if line.contains("FUTEX_WAKE") {
        Some("futex")
    } else {
        None
    }
}

/// One of ten runs shows what is claimed: on a busy machine threads meet as they do not elsewhere.
fn is_shown(
    mode: &str,
    named: fn(&str) -> Option<&'static str>,
    claim: impl Fn(&dyn Fn(&str) -> f64) -> bool,
) {
    let mut seen = Vec::new();
    for _ in 0..10 {
        let Some(counts) = calls_a_round(mode, named) else { return };
        if claim(&|name| counts.get(name).copied().unwrap_or(0.0)) {
            return;
        }
        seen.push(counts);
    }
    panic!("{mode}: {seen:?}");
}

#[test]
fn an_uncontended_call_of_a_thread_that_blocks_wakes_no_other_thread() {
    // A round has two calls. The I/O thread reads the answers that come behind the quorum's. Now
    // and then it is still reading when the next call begins.
    is_shown("park", hand_over, |of| of("eventfd") <= 0.5 && of("futex") <= 2.0);
}

#[test]
fn a_handle_that_spins_sleeps_nowhere() {
    // The eventfd tells the I/O thread of the call; that thread is awake all the time.
    is_shown("spin", hand_over, |of| of("futex") <= 0.2 && of("eventfd") <= 2.1);
}

#[test]
fn calls_that_come_together_go_out_with_one_write_a_node() {
    let sends = |line: &str| {
        if line.contains(AGAIN) {
            Some("again")
        } else {
            (line.contains("sendto(") || line.contains("writev(")).then_some("send")
        }
    };
    // The first call's SET; sixteen SETs at once; the first call's release and the last call's SET;
    // sixteen releases at once, and with them the last call's. Each takes one or two writes, for 36
    // commands per node. A lock that was taken in vain adds a SET and a release.
    is_shown("burst", sends, |of| {
        (3.0..=6.5 + 2.0 * of("again")).contains(&(of("send") / NODE_COUNT as f64))
    });
}

#[test]
fn all_clones_share_one_thread_that_ends_with_the_last() {
    let _ = system_calls("threads", 0, |_| None);
}

/// The client does not hold the table's lock while it runs the caller's code, which may use the
/// client itself.
#[test]
fn wakers_may_use_the_handle_when_they_run_and_when_they_are_dropped() {
    struct Curious(Client);
    impl Wake for Curious {
        fn wake(self: Arc<Self>) {
            drop(format!("{:?}", self.0));
        }
    }
    impl Drop for Curious {
        fn drop(&mut self) {
            drop(format!("{:?}", self.0));
        }
    }
    let (nodes, shared) = embedded(|config| config);
    let is_over = Arc::new(AtomicBool::new(false));
    let (handle, flag) = (shared.clone(), Arc::clone(&is_over));
    // A thread of its own, because a deadlock must end the test.
    thread::spawn(move || {
        for round in 0..200_u32 {
            let guard = (round % 2 == 0).then(|| handle.lock("k", patient(TTL)).wait().unwrap());
            let mut future: Locking<'_> = Box::pin(handle.lock("k", patient(TTL)));
            // Each poll replaces, and so drops, the waker of the poll before.
            for _ in 0..round % 5 {
                let waker = Waker::from(Arc::new(Curious(handle.clone())));
                if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    break;
                }
            }
            drop(guard);
            thread::yield_now();
        }
        flag.store(true, Ordering::Release);
    });
    assert!(eventually(PATIENCE, || is_over.load(Ordering::Acquire)), "it hangs");
    is_clean(&nodes, &shared);
}

#[test]
fn a_waker_that_blocks_holds_up_no_other_caller() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("held", TTL).wait().unwrap();
    let (future, barrier) = held_up(&shared, "k");
    let mut other: Locking<'_> = Box::pin(shared.try_lock("other", TTL));
    ends_within(ms(0), || {
        assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(other);
        drop(guard);
        assert!(matches!(shared.try_lock("", TTL).wait(), Err(LockError::InvalidKey { .. })));
    });
    barrier.open();
    drop(future);
    is_clean(&nodes, &shared);
}

#[test]
fn dropping_a_guard_waits_for_no_node() {
    let (nodes, shared) = embedded(|config| config.node_timeout(ms(500)));
    let guards: Vec<_> =
        (0..100).map(|k| shared.try_lock(format!("k:{k}"), TTL).wait().unwrap()).collect();
    (0..3).for_each(|node| nodes.pause(node).unwrap());
    ends_within(ms(0), || drop(guards));
    (0..3).for_each(|node| nodes.resume(node).unwrap());
    is_clean(&nodes, &shared);
}

#[test]
fn a_shutdown_ends_by_its_limit_and_says_what_is_still_owed() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    assert!(eventually(PATIENCE, || (0..3).all(|node| nodes.key_count(node).unwrap() == 1)));
    (0..3).for_each(|node| nodes.pause(node).unwrap());
    drop(guard);
    let owed = ends_within(ms(300), || shared.shutdown(ms(300)).wait());
    assert!(owed > 0, "no node has answered");
    // The client sent the release all the same.
    (0..3).for_each(|node| nodes.resume(node).unwrap());
    assert!(eventually(PATIENCE, || (0..3).all(|node| nodes.key_count(node).unwrap() == 0)));
}
