//! Three nodes, each a master with a replica behind an address that moves. One pair after the other
//! fails over and loses its last writes: the old master dies, or it is cut off from its replica and
//! still serves the clients that are connected to it.

use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::{Client, Config, FailoverGuard, Instant, Retry, now};

use redbolt_rig::{Door, Kind, RealServer, StopAtEnd, eventually, kind_or_skip, ms};

use super::{Duration, chosen_seed, lasts};

const TTL: Duration = ms(800);
const MAX_TTL: Duration = Duration::from_secs(1);
/// Half of these clients stay. Each of the others makes a few turns, and a newcomer follows it.
const CLIENTS: usize = 8;
/// A master that is cut off from its replica takes no writes after this time.
const CEASES_WITHIN: Duration = Duration::from_secs(13);
/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(40);

/// The setting with which a master that is cut off ceases to grant.
const FLOOR: [&str; 2] = ["--min-replicas-to-write", "1"];

/// One server of a pair.
struct Side {
    server: RealServer,
    /// The address at which a replica reaches the server.
    link: Door,
}

/// A master and its replica, and a server that takes the replica's place once that is promoted.
struct Pair {
    master: Side,
    replica: Side,
    spare: Side,
    /// The address of the master, for clients.
    door: Door,
}

/// What happens to the old master.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Dies,
    /// It is cut off from its replica, and its clients stay.
    IsCutOff,
}

impl Side {
    fn start(kind: Kind, args: &[&str]) -> Self {
        let args = [&["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"], args];
        let server = RealServer::start(kind, &args.concat());
        Self { link: Door::open(server.port()), server }
    }

    /// Makes this server the replica of `master`, and returns once it has the master's keys.
    fn follow(&self, master: &Self) {
        self.server.command(&["REPLICAOF", "127.0.0.1", &master.link.port.to_string()]);
        let is_up = || {
            let info = self.server.command(&["INFO", "replication"]);
            String::from_utf8_lossy(&info).contains("master_link_status:up")
        };
        assert!(eventually(LIMIT, is_up), "it does not follow");
    }

    /// Whether the server takes writes.
    fn takes_writes(&self) -> bool {
        self.server.command(&["SET", "probe", "x", "PX", "10"]) == b"+OK\r\n"
    }
}

impl Pair {
    fn start(kind: Kind, args: &[&str]) -> Self {
        let [master, replica, spare] = [(); 3].map(|()| Side::start(kind, args));
        replica.follow(&master);
        Self { door: Door::open(master.server.port()), master, replica, spare }
    }

    /// Fails over, without the writes of the last moment. The new master can grant as soon as it has
    /// the spare as its replica. Returns once the old master grants no more.
    ///
    /// While the old master still grants, the master of `other`, if any, stands still now and then.
    /// So a lock rests on the old master and one node more. Another lock could rest on the new
    /// master and the node that did not hear of the first.
    fn fail_over(&mut self, other: Option<&Self>, end: End) {
        self.master.link.hold();
        let sets = self.master.server.calls("set");
        let loses = || self.master.server.calls("set") > sets + 10;
        assert!(eventually(LIMIT, loses), "clients write nothing");
        if end == End::Dies {
            self.master.server.kill9();
        }
        assert!(self.replica.server.command(&["REPLICAOF", "NO", "ONE"]).starts_with(b"+OK"));
        let promoted_at = now();
        self.door.move_to(self.replica.server.port());
        self.spare.follow(&self.replica);
        if end == End::Dies {
            self.master.server.restart();
        } else {
            let has_ceased = || {
                if let Some(other) = other {
                    other.master.server.freeze();
                    thread::sleep(ms(250));
                    other.master.server.thaw();
                    thread::sleep(ms(100));
                }
                !self.master.takes_writes()
            };
            // Without the floor, the old master takes writes for ever.
            eventually(CEASES_WITHIN, has_ceased);
            println!("the old master took writes for {:?}", promoted_at.until(now()));
        }
        self.master.link.release();
        mem::swap(&mut self.master, &mut self.replica);
        mem::swap(&mut self.replica, &mut self.spare);
        // The clients of the old master come to the new one.
        self.door.cut();
    }
}

/// The leases of one key: from the hand-over to the deadline or the beginning of the unlock.
type Leases = Mutex<Vec<(Instant, Instant)>>;

/// Takes locks, and notes for how long it has them.
fn take_turns(config: &Config, leases: &Leases, seed: u64, is_over: &AtomicBool) {
    let mut random = StdRng::seed_from_u64(seed);
    let stays = seed.is_multiple_of(2);
    while !is_over.load(Ordering::SeqCst) {
        let client = Client::open(config.clone()).expect("a client");
        for _ in 0..if stays { usize::MAX } else { 5 } {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let Ok(guard) = client.lock("k", TTL).wait() else { continue };
            let begin = now();
            thread::sleep(ms(random.random_range(10..150)));
            let end = now().min(guard.deadline());
            leases.lock().expect("nobody panics").push((begin, end));
            drop(guard);
        }
    }
}

fn config(urls: &[String], guard: FailoverGuard) -> Config {
    // Clients that compete at each moment split the votes as often as can be.
    let retry = Retry::every(ms(1), ms(4)).timeout(Duration::from_secs(1));
    let config = Config::new(urls).expect("addresses").max_ttl(MAX_TTL);
    config.failover_guard(guard).retry(retry).direct_wake(false).local_turns(0)
}

/// What a run of failovers has shown.
#[derive(Debug, Default)]
struct Shown {
    /// How many locks were taken while another client held the lock.
    doubled: usize,
    /// The longest time without a lock.
    pause: Duration,
}

fn judge(leases: &Leases) -> Shown {
    let mut leases = leases.lock().expect("nobody panics").clone();
    leases.sort_unstable();
    let mut shown = Shown::default();
    let mut last = leases.first().map_or_else(now, |(begin, _)| *begin);
    for (begin, end) in leases {
        shown.doubled += usize::from(begin < last);
        shown.pause = shown.pause.max(last.until(begin));
        last = last.max(end);
    }
    shown
}

/// Lets pairs fail over in turn while clients lock, as long as `goes_on` says; `None` if a server is
/// not installed.
fn run(
    kinds: &[Kind],
    args: &[&str],
    guard: FailoverGuard,
    goes_on: impl Fn(usize, &Shown) -> bool,
) -> Option<Shown> {
    for &kind in kinds {
        kind_or_skip(kind)?;
    }
    let mut pairs: Vec<Pair> = kinds.iter().map(|kind| Pair::start(*kind, args)).collect();
    let urls: Vec<String> = pairs.iter().map(|pair| pair.door.url()).collect();
    let config = config(&urls, guard);
    let (leases, is_over) = (Leases::default(), AtomicBool::new(false));
    let mut random = StdRng::seed_from_u64(chosen_seed());
    thread::scope(|scope| {
        for index in 0..CLIENTS {
            let (config, leases, is_over) = (&config, &leases, &is_over);
            scope.spawn(move || take_turns(config, leases, index as u64, is_over));
        }
        let _stop = StopAtEnd(&is_over);
        let count = || leases.lock().expect("nobody panics").len();
        for (round, end) in [End::IsCutOff, End::Dies].into_iter().cycle().enumerate() {
            let before = count();
            assert!(eventually(LIMIT, || count() > before + 20), "no locks before {end:?}");
            if !goes_on(round, &judge(&leases)) {
                break;
            }
            let index = random.random_range(0..pairs.len());
            pairs.rotate_left(index);
            if let Some((pair, others)) = pairs.split_first_mut() {
                pair.fail_over(others.first(), end);
            }
            // No other pair fails over until each newcomer gets this node's vote.
            let newcomer = Client::open(config.clone()).expect("a client");
            let votes = || newcomer.nodes().wait().iter().all(|node| node.votes);
            assert!(eventually(LIMIT, votes), "{end:?}: {:?}", newcomer.nodes().wait());
        }
    });
    let shown = judge(&leases);
    println!("{shown:?}");
    Some(shown)
}

const THREE: [Kind; 3] = [Kind::Valkey91, Kind::Redis86, Kind::Redis70];

#[test]
fn no_lock_has_two_holders_and_locks_go_on_while_pairs_fail_over() {
    let goes_on = lasts(2);
    let Some(shown) = run(&THREE, &FLOOR, FailoverGuard::On, |round, _| goes_on(round)) else {
        return;
    };
    assert_eq!(shown.doubled, 0, "{shown:?}");
    assert!(shown.pause < MAX_TTL * 2, "{shown:?}");
}

/// A single node has no locks while it fails over, and until all that it forgot is over.
#[test]
fn a_single_pair_pauses_for_its_failover_and_never_gives_two_holders() {
    let goes_on = lasts(2);
    let kinds = [Kind::Valkey81];
    let Some(shown) = run(&kinds, &FLOOR, FailoverGuard::On, |round, _| goes_on(round)) else {
        return;
    };
    assert_eq!(shown.doubled, 0, "{shown:?}");
    let bound = CEASES_WITHIN + MAX_TTL + Duration::from_secs(8);
    assert!(shown.pause > CEASES_WITHIN && shown.pause < bound, "{shown:?}");
}

/// The same judge sees two holders where the old master goes on and the clients' guard is off.
#[test]
fn without_the_guard_a_failover_gives_two_holders() {
    let Some(shown) =
        run(&THREE, &[], FailoverGuard::Off, |round, shown| round < 10 && shown.doubled == 0)
    else {
        return;
    };
    assert!(shown.doubled > 0, "{shown:?}");
}
