//! Eight processes count under locks on five real servers of mixed versions. Meanwhile servers are
//! killed, frozen, emptied, filled and demoted, and the processes themselves are stopped.
//!
//! Each turn reads a counter from a plain file, waits, and writes it back one higher. It holds the
//! lock, and writes only with a second of validity left.
//! A process is stopped for less than that second, or not between its look at the deadline and the
//! write. So every write takes effect while its lock is held, and two holders at once would lose a
//! count.
//!
//! `REDBOLT_CHAOS=300` makes each test with faults last for this many seconds; `REDBOLT_SEED`
//! repeats its faults.

mod failing_over;
mod outliving;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::{Client, Config, Quorum, Retry, now};

use redbolt_rig::{Cluster, Kind, directory, eventually, is_stopped, ms, own_test};

const WORKERS: usize = 8;
const KEYS: usize = 3;
const TTL: Duration = ms(1_500);
const MAX_TTL: Duration = ms(1_500);
/// Validity that must be left for a write; longer than any stop of a process.
const RESERVE: Duration = ms(1_000);
const STOP: Duration = ms(150);
/// The fewest turns with which a run shows anything.
const TURNS_MIN: u64 = 300;

/// What the processes do under their locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Count,
    Transfer,
    /// Each counter belongs to a slot of one lock; a writer counts on all.
    Slots,
}

impl Work {
    const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Transfer => "transfer",
            Self::Slots => "slots",
        }
    }

    /// The keys of the locks.
    fn keys(self) -> Vec<String> {
        let slot = |key: usize| format!("{SLOTTED}:slot:{key}");
        match self {
            Self::Count | Self::Transfer => (0..KEYS).map(lock_key).collect(),
            Self::Slots => (0..KEYS).map(slot).chain([format!("{SLOTTED}:slot")]).collect(),
        }
    }

    /// The servers. A transfer takes both locks by one `MSETEX`, which all nodes must have.
    const fn kinds(self) -> [Kind; 5] {
        use Kind::{Redis70, Redis80, Redis86, Valkey81, Valkey91};
        match self {
            Self::Count | Self::Slots => [Valkey91, Redis86, Redis70, Valkey81, Redis80],
            Self::Transfer => [Valkey91, Redis86, Valkey91, Redis86, Valkey91],
        }
    }
}

/// The lock that has slots.
const SLOTTED: &str = "chaos";

/// What is in each account at first.
const BALANCE: u64 = 1_000;

/// All that a majority bears.
const FAULTS: [Fault; 6] = [
    Fault::KillAndRestartEmpty,
    Fault::Freeze,
    Fault::StopWorkers,
    Fault::FillMemory,
    Fault::Demote,
    Fault::DropConnections,
];

#[test]
fn no_count_is_lost_while_servers_die_freeze_and_forget() {
    run(Work::Count, Quorum::Majority, &FAULTS, 18);
}

/// Eight processes move money between accounts, each time under the locks of both.
#[test]
fn the_sum_of_all_accounts_stays_the_same_while_servers_die_and_freeze() {
    run(Work::Transfer, Quorum::Majority, &FAULTS, 10);
}

/// Eight processes share three slots. Each counts for the slot that it holds, and now and then, as a
/// writer, for all.
#[test]
fn no_slot_has_two_holders_and_a_writer_is_alone_while_servers_die_and_freeze() {
    run(Work::Slots, Quorum::Majority, &FAULTS, 14);
}

#[test]
fn no_count_is_lost_when_a_server_forgets_under_a_larger_quorum() {
    run(
        Work::Count,
        Quorum::AtLeast(4),
        &[Fault::FlushAll, Fault::StopWorkers, Fault::DropConnections],
        12,
    );
}

#[test]
fn no_count_is_lost_when_a_server_forgets_locks_that_all_have_granted() {
    let faults = [Fault::FlushFullyHeld, Fault::Freeze, Fault::StopWorkers, Fault::DropConnections];
    run(Work::Count, Quorum::Majority, &faults, 16);
}

/// A lock that a stopped process holds, or that is on its way to it, is blocked until its lease is
/// over. In the rest of the two TTLs, the others must find the lock free, even on a busy machine. A
/// busy machine may exceed that time after some stops, but not after most. The test prints how long
/// each stop cost the others.
#[test]
fn a_stopped_waiter_costs_the_others_less_than_two_ttls() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let dir = directory();
    let mut workers = Workers::start(&cluster, Work::Count, Quorum::Majority, dir.path());
    assert!(eventually(Duration::from_secs(20), || workers.turns() > 50), "no turns are made");
    let mut random = StdRng::seed_from_u64(now().as_nanos());
    let mut longest = Vec::new();
    // Stopping a process costs and shows nothing if no lock was on its way to it.
    while longest.iter().filter(|gap| **gap > TTL / 2).count() < 3 && longest.len() < 20 {
        let stopped = stop_before_a_write(&workers, &mut random);
        longest.push(longest_gap(dir.path(), TTL * 2));
        signal("-CONT", stopped);
        let turns = workers.turns();
        let go_on = eventually(Duration::from_secs(20), || workers.turns() > turns + 100);
        assert!(go_on && workers.all_alive(), "no turns after a stop, or a worker ended");
    }
    println!("without a turn under the same lock: {longest:.2?}");
    let late = longest.iter().filter(|gap| **gap >= TTL * 2).count();
    assert!(late * 2 < longest.len(), "a lock was not given on: {longest:.2?}");
    assert!(longest.iter().any(|gap| *gap > TTL / 2), "no stop met a lock: {longest:.2?}");
    check_counts(Work::Count, &cluster, &mut workers, dir.path());
}

/// Stops a process that has yet to look at its deadline before it writes. A stop longer than
/// [`RESERVE`] between the two would cost counts, whatever the client does.
fn stop_before_a_write(workers: &Workers, random: &mut StdRng) -> u32 {
    let mut stopped = None;
    let found = eventually(Duration::from_secs(20), || {
        let index = random.random_range(0..WORKERS);
        let id = workers.children.get(index).expect("one of them").id();
        signal("-STOP", id);
        assert!(eventually(Duration::from_secs(20), || is_stopped(id)), "process {id} goes on");
        if writing(&workers.dir, index).exists() {
            signal("-CONT", id);
        } else {
            stopped = Some(id);
        }
        stopped.is_some()
    });
    assert!(found, "every stop hit a write");
    stopped.expect("found")
}

/// The longest time for which a counter stood still. The function watches until each counter has
/// moved after one TTL, or until one has stood still for `limit`.
fn longest_gap(dir: &Path, limit: Duration) -> Duration {
    let (begin, mut longest) = (redbolt_rig::now(), Duration::ZERO);
    let mut last = [(0, begin); KEYS];
    while longest < limit && last.iter().any(|(_, at)| *at < begin + TTL) {
        for (key, (count, at)) in last.iter_mut().enumerate() {
            let (new, now) = (read_counter(&counter(dir, key)), redbolt_rig::now());
            longest = longest.max(now - *at);
            if new != *count {
                (*count, *at) = (new, now);
            }
        }
        thread::sleep(ms(1));
    }
    longest
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    KillAndRestartEmpty,
    Freeze,
    StopWorkers,
    FillMemory,
    Demote,
    FlushAll,
    /// At a bare quorum, a server may forget only locks for which another vote stands.
    FlushFullyHeld,
    DropConnections,
}

fn run(work: Work, quorum: Quorum, faults: &[Fault], rounds: usize) {
    let Some(mut cluster) = Cluster::start(&work.kinds(), &[]) else { return };
    let dir = directory();
    let opening = if work == Work::Transfer { BALANCE } else { 0 };
    (0..KEYS).for_each(|key| write_counter(&counter(dir.path(), key), opening));
    let mut workers = Workers::start(&cluster, work, quorum, dir.path());
    // The servers are too young to vote at first.
    assert!(eventually(Duration::from_secs(20), || workers.turns() > 50), "no turns are made");

    let mut random = StdRng::seed_from_u64(chosen_seed());
    let goes_on = lasts(rounds);
    for (round, &fault) in faults.iter().cycle().enumerate() {
        if !goes_on(round) {
            break;
        }
        let node = random.random_range(0..cluster.len());
        inflict(fault, &mut cluster, node, &workers, &mut random);
        // Each fault is over, and the guard with it, before the next. So the quorum is never lost
        // for good, and never more than one server has forgotten its promises.
        let turns = workers.turns();
        let go_on = eventually(Duration::from_secs(20), || workers.turns() > turns + 20);
        assert!(go_on, "no turns after {fault:?} on node {node}");
        assert!(workers.all_alive(), "a worker ended");
        if fault == Fault::KillAndRestartEmpty || fault == Fault::Demote {
            thread::sleep(MAX_TTL + ms(200));
        }
    }
    check_counts(work, &cluster, &mut workers, dir.path());
}

/// Returns the seed of the faults, and prints it.
fn chosen_seed() -> u64 {
    let seed = std::env::var("REDBOLT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| now().as_nanos());
    println!("REDBOLT_SEED={seed}");
    seed
}

/// Returns whether a test goes on with a round: for `rounds` rounds, or for the seconds that
/// `REDBOLT_CHAOS` names.
fn lasts(rounds: usize) -> impl Fn(usize) -> bool {
    let seconds = std::env::var("REDBOLT_CHAOS").ok().and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| now() + Duration::from_secs(seconds));
    move |round| end.map_or(round < rounds, |end| now() < end)
}

/// Ends the workers, and checks that no count was lost and no key is left.
fn check_counts(work: Work, cluster: &Cluster, workers: &mut Workers, dir: &Path) {
    let turns = workers.finish();
    let counted: u64 = (0..KEYS).map(|key| read_counter(&counter(dir, key))).sum();
    let late: u64 = (0..WORKERS).map(|index| read_counter(&late_file(dir, index))).sum();
    println!("{turns} turns, {counted} counted, {late} writes ended after their lease");
    match work {
        Work::Count | Work::Slots => assert_eq!(counted, turns, "counts were lost"),
        Work::Transfer => {
            assert_eq!(counted, KEYS as u64 * BALANCE, "the sum has changed");
            assert!(cluster.calls("msetex") > 0, "no node was asked for both locks at once");
        }
    }
    assert!(turns >= TURNS_MIN, "only {turns} turns: nothing is shown");
    // No worker holds a lock or owes a release, so no key is left, long before its TTL is over.
    let left: usize = work.keys().iter().map(|key| cluster.holders(key)).sum();
    assert_eq!((workers.owed(), left), (vec![0; WORKERS], 0), "keys are left behind");
}

fn inflict(
    fault: Fault,
    cluster: &mut Cluster,
    node: usize,
    workers: &Workers,
    random: &mut StdRng,
) {
    let pause = ms(random.random_range(50..600));
    match fault {
        Fault::KillAndRestartEmpty => {
            cluster.node_mut(node).kill9();
            thread::sleep(pause);
            cluster.node_mut(node).restart();
        }
        Fault::Freeze => {
            cluster.node(node).freeze();
            thread::sleep(pause);
            cluster.node(node).thaw();
        }
        Fault::StopWorkers => {
            for worker in &workers.children {
                signal("-STOP", worker.id());
                thread::sleep(STOP);
                signal("-CONT", worker.id());
            }
        }
        Fault::FillMemory => {
            let set = |limit| cluster.node(node).command(&["CONFIG", "SET", "maxmemory", limit]);
            assert_eq!(set("1"), b"+OK\r\n");
            thread::sleep(pause);
            assert_eq!(set("0"), b"+OK\r\n");
        }
        Fault::Demote => {
            // No server listens there: the keys stay, and every client that asks gets READONLY.
            let server = cluster.node(node);
            assert!(server.command(&["REPLICAOF", "127.0.0.1", "1"]).starts_with(b"+OK"));
            thread::sleep(ms(1_000) + pause);
            assert!(server.command(&["FLUSHALL"]).starts_with(b"-READONLY"));
            assert!(server.command(&["REPLICAOF", "NO", "ONE"]).starts_with(b"+OK"));
            // As if the master that it followed had been empty.
            assert_eq!(server.command(&["FLUSHALL"]), b"+OK\r\n");
        }
        Fault::FlushFullyHeld => flush_fully_held(cluster, node, workers, random),
        Fault::FlushAll => {
            assert_eq!(cluster.node(node).command(&["FLUSHALL"]), b"+OK\r\n");
            // The next server may forget only when no lock depends on this one's memory.
            thread::sleep(MAX_TTL + ms(200));
        }
        Fault::DropConnections => {
            cluster.node(node).hang_up();
        }
    }
}

/// Empties a server while every lock that any process holds was granted by all five servers. This
/// process holds them, and takes its turn under them while the others try.
fn flush_fully_held(cluster: &Cluster, node: usize, workers: &Workers, random: &mut StdRng) {
    let client = Client::open(config(&cluster.urls(), 3)).expect("a client");
    workers.pause();
    let mut leases = Vec::new();
    let are_held = eventually(Duration::from_secs(20), || {
        leases.clear();
        for key in 0..KEYS {
            let Ok(lease) = client.lock(lock_key(key), TTL).wait() else { return false };
            // A node that has answered this has also answered the SET before it.
            let is_asked = client.leader(lock_key(key)).wait().is_ok();
            if !is_asked || usize::try_from(lease.votes().count()) != Ok(cluster.len()) {
                return false;
            }
            leases.push(lease);
        }
        leases.iter().all(|lease| lease.remaining() > RESERVE + ms(200))
    });
    assert!(are_held, "five healthy servers do not grant");
    assert_eq!(cluster.node(node).command(&["FLUSHALL"]), b"+OK\r\n");
    workers.resume();
    for (key, lease) in leases.into_iter().enumerate() {
        thread::sleep(ms(random.random_range(50..150)));
        let path = counter(&workers.dir, key);
        let count = read_counter(&path);
        if lease.remaining() > RESERVE {
            write_counter(&path, count + 1);
            let own = turns_file(&workers.dir, WORKERS);
            write_counter(&own, read_counter(&own) + 1);
        }
        let _ = lease.unlock().wait();
    }
}

fn config(urls: &[String], votes: usize) -> Config {
    Config::new(urls)
        .expect("addresses")
        .quorum(Quorum::AtLeast(votes))
        .max_ttl(MAX_TTL)
        .retry(Retry::every(ms(2), ms(8)).timeout(Duration::from_secs(2)))
}

fn signal(signal: &str, pid: u32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill {signal} {pid}");
}

// ---- the processes ----

struct Workers {
    children: Vec<Child>,
    dir: PathBuf,
}

impl Workers {
    fn start(cluster: &Cluster, work: Work, quorum: Quorum, dir: &Path) -> Self {
        let votes = if quorum == Quorum::Majority { 3 } else { 4 };
        let start = |index: usize| {
            own_test("worker::one_of_the_processes_that_count")
                .env("REDBOLT_CHAOS_DIR", dir)
                .env("REDBOLT_CHAOS_WORK", work.name())
                .env("REDBOLT_CHAOS_NODES", cluster.urls().join(","))
                .env("REDBOLT_CHAOS_QUORUM", votes.to_string())
                .env("REDBOLT_CHAOS_INDEX", index.to_string())
                .stdout(Stdio::null())
                .spawn()
                .expect("a worker starts")
        };
        Self { children: (0..WORKERS).map(start).collect(), dir: dir.to_owned() }
    }

    /// Returns when no worker holds a lock or will take one.
    fn pause(&self) {
        let wanted = now().as_nanos();
        write_counter(&self.dir.join("pause"), wanted);
        let is_paused =
            |index: usize| read_counter(&self.dir.join(format!("paused-{index}"))) == wanted;
        let all = || (0..WORKERS).all(is_paused);
        assert!(eventually(Duration::from_secs(20), all), "a worker does not pause");
    }

    fn resume(&self) {
        fs::remove_file(self.dir.join("pause")).expect("it was paused");
    }

    /// How many turns were made, the test's own among them.
    fn turns(&self) -> u64 {
        (0..=WORKERS).map(|index| read_counter(&turns_file(&self.dir, index))).sum()
    }

    /// How many releases each worker owed when its shutdown ended.
    fn owed(&self) -> Vec<u64> {
        let owed = |index: usize| read_counter(&self.dir.join(format!("owed-{index}")));
        (0..WORKERS).map(owed).collect()
    }

    fn all_alive(&mut self) -> bool {
        self.children.iter_mut().all(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Lets every worker end its turn, and returns how many turns all have made.
    fn finish(&mut self) -> u64 {
        fs::write(self.dir.join("stop"), "").expect("a writable directory");
        for child in &mut self.children {
            let status = child.wait().expect("a worker ends");
            assert!(status.success(), "a worker failed: {status}");
        }
        self.turns()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // An error means that the worker has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lock_key(key: usize) -> String {
    format!("chaos:{key}")
}

fn counter(dir: &Path, key: usize) -> PathBuf {
    dir.join(format!("counter-{key}"))
}

fn turns_file(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("turns-{index}"))
}

/// How many writes of a process ended when its lease was over. A machine that stands still in the
/// middle of a write costs counts, whatever the client does.
fn late_file(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("late-{index}"))
}

/// The file exists while a process may write a counter.
fn writing(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("writing-{index}"))
}

fn read_counter(path: &Path) -> u64 {
    // A file that is just being written reads as empty; only `turns`, which waits, sees that.
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn write_counter(path: &Path, count: u64) {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    fs::write(&new, count.to_string()).expect("a writable directory");
    fs::rename(&new, path).expect("a writable directory");
}
