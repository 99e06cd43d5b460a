//! Elections of three processes on five real servers, beside kills, stops and partitions. The terms
//! that the processes write down never overlap, each by its own deadline.
//!
//! `REDBOLT_ELECTIONS=600` makes the long test last for this many seconds instead of 20;
//! `REDBOLT_SEED` repeats its faults. Each candidate reaches each server through a proxy of its
//! own, so the test can cut it off from some servers and not from others.

#![expect(clippy::indexing_slicing, reason = "what is not in these lists fails the test")]

mod candidate;
mod judge;

use std::fs;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::now;
use redbolt_benches::proxy::{Mode, Proxy};

use candidate::{Candidate, Manner};
use judge::{End, Term, judge, read};
use redbolt_rig::{Cluster, PATIENCE, eventually, ms};

const TTL_MS: u64 = 600;
const CANDIDATES: usize = 3;

/// While all is well, a term must begin within this time after the last term's end. A loaded
/// machine may take long to give a process its turn.
const FOLLOWED: Duration = Duration::from_secs(10);

struct Election {
    cluster: Cluster,
    /// For each candidate, one per server.
    proxies: Vec<Vec<Proxy>>,
    candidates: Vec<Candidate>,
    manners: Vec<Manner>,
    dir: tempfile::TempDir,
}

impl Election {
    fn start(manners: &[Manner]) -> Option<Self> {
        let cluster = Cluster::mixed(5)?;
        let proxy =
            |url: String| Proxy::start(url.trim_start_matches("redis://")).expect("a proxy starts");
        let proxies = manners.iter().map(|_| cluster.urls().into_iter().map(proxy).collect());
        let proxies = proxies.collect();
        Some(Self::of(cluster, proxies, manners))
    }

    /// Starts candidates that reach the servers directly.
    fn start_direct(manners: &[Manner]) -> Option<Self> {
        Some(Self::of(Cluster::mixed(5)?, Vec::new(), manners))
    }

    fn of(cluster: Cluster, proxies: Vec<Vec<Proxy>>, manners: &[Manner]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut election =
            Self { cluster, proxies, candidates: Vec::new(), manners: manners.to_vec(), dir };
        for index in 0..manners.len() {
            let candidate = election.candidate(index);
            election.candidates.push(candidate);
        }
        election
    }

    fn candidate(&self, index: usize) -> Candidate {
        let url = |proxy: &Proxy| format!("redis://{}", proxy.address());
        let urls = self.proxies.get(index).map(|proxies| proxies.iter().map(url).collect());
        let urls: Vec<String> = urls.unwrap_or_else(|| self.cluster.urls());
        Candidate::start(index, &urls, self.dir.path(), self.manners[index])
    }

    /// All terms that the candidates have written so far, in the order in which they began.
    fn terms(&self) -> Vec<Term> {
        let diary = |index: usize| {
            let text = fs::read_to_string(&self.candidates[index].diary).unwrap_or_default();
            read(index, &text)
        };
        let mut terms: Vec<Term> = (0..self.candidates.len()).flat_map(diary).collect();
        terms.sort_by_key(|term| term.began);
        terms
    }

    /// The candidate that leads now, by its own belief.
    fn leader(&self) -> Option<usize> {
        let last = self.terms().pop()?;
        (last.end == End::Silence && now().as_nanos() < last.over).then_some(last.candidate)
    }

    #[track_caller]
    fn await_leader(&self) -> usize {
        assert!(eventually(FOLLOWED, || self.leader().is_some()), "nobody leads");
        // The leader may have resigned since.
        self.terms().pop().expect("a term").candidate
    }

    /// Begins a killed candidate anew.
    fn replace(&mut self, index: usize) {
        self.candidates[index].kill();
        self.candidates[index] = self.candidate(index);
    }

    /// Sets what the proxies between a candidate and these servers do.
    fn link(&self, candidate: usize, servers: &[usize], mode: Mode) {
        for &server in servers {
            self.proxies[candidate][server].set(mode);
        }
    }

    fn heal(&self) {
        for candidate in 0..self.proxies.len() {
            self.link(candidate, &[0, 1, 2, 3, 4], Mode::Pass);
        }
    }
}

const HONEST: Manner = Manner { ttl_ms: TTL_MS, resigns_after_ms: 0, boast_ms: 0 };

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillLeader,
    StopLeader,
    StopAnyone,
    /// Cuts the leader off from a majority, or from all.
    CutLeader(Mode),
    /// Each candidate loses two servers, and no two candidates lose the same pair.
    CutAll(Mode),
    SlowAll,
    KillServer,
    FreezeServer,
}

const FAULTS: [Fault; 10] = [
    Fault::KillLeader,
    Fault::StopLeader,
    Fault::CutLeader(Mode::Hang),
    Fault::CutLeader(Mode::Refuse),
    Fault::KillLeader,
    Fault::CutAll(Mode::Hang),
    Fault::StopAnyone,
    Fault::SlowAll,
    Fault::KillServer,
    Fault::FreezeServer,
];

fn inflict(election: &mut Election, fault: Fault, random: &mut StdRng) {
    let leader = election.await_leader();
    // Shorter or longer than a TTL.
    let pause = ms(random.random_range(50..2 * TTL_MS));
    let sleep = |time| std::thread::sleep(time);
    match fault {
        Fault::KillLeader => {
            election.candidates[leader].kill();
            sleep(pause);
            election.replace(leader);
        }
        Fault::StopLeader | Fault::StopAnyone => {
            let anyone = random.random_range(0..election.candidates.len());
            let who = if matches!(fault, Fault::StopLeader) { leader } else { anyone };
            election.candidates[who].signal("STOP");
            sleep(pause);
            election.candidates[who].signal("CONT");
        }
        Fault::CutLeader(mode) => {
            let count = random.random_range(3..=5);
            election.link(leader, &[4, 2, 0, 1, 3][..count], mode);
            sleep(pause);
        }
        Fault::CutAll(mode) => {
            for candidate in 0..election.candidates.len() {
                election.link(candidate, &[candidate, candidate + 1], mode);
            }
            sleep(pause);
        }
        Fault::SlowAll => {
            for candidate in 0..election.candidates.len() {
                election.link(candidate, &[0, 1, 2, 3, 4], Mode::Delay(ms(30)));
            }
            sleep(pause);
        }
        Fault::KillServer => {
            let server = random.random_range(0..election.cluster.len());
            election.cluster.node_mut(server).kill9();
            sleep(pause);
            election.cluster.node_mut(server).restart();
            // No other server may forget its locks before the locks that this one forgot are over.
            sleep(ms(2 * TTL_MS));
        }
        Fault::FreezeServer => {
            let server = random.random_range(0..election.cluster.len());
            election.cluster.node(server).freeze();
            sleep(pause);
            election.cluster.node(server).thaw();
        }
    }
    election.heal();
}

/// How long the long test lasts.
fn length() -> Duration {
    let seconds = std::env::var("REDBOLT_ELECTIONS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

#[test]
fn terms_never_overlap_while_candidates_are_killed_stopped_and_cut_off() {
    // One candidate resigns now and then.
    let manners = [HONEST, HONEST, Manner { resigns_after_ms: 1_500, ..HONEST }];
    let Some(mut election) = Election::start(&manners) else { return };
    let seed = std::env::var("REDBOLT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| now().as_nanos());
    println!("REDBOLT_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let end = now() + length();
    let mut faults = 0;
    while now() < end {
        let fault = FAULTS[faults % FAULTS.len()];
        inflict(&mut election, fault, &mut random);
        assert!(election.candidates.iter_mut().all(Candidate::is_alive), "one ended at {fault:?}");
        faults += 1;
    }
    election.await_leader();
    let verdict = judge(election.terms());
    println!("{faults} faults: {verdict}");
    assert!(verdict.overlaps.is_empty(), "{verdict}");
    assert!(verdict.terms > faults / 3, "{verdict}: nothing is shown");
}

#[test]
fn a_candidate_that_believes_in_its_term_for_too_long_is_found_out() {
    let boasting = Manner { boast_ms: 2 * TTL_MS, ..HONEST };
    let Some(mut election) = Election::start(&[boasting; 2]) else { return };
    let leader = election.await_leader();
    election.candidates[leader].kill();
    let has_other =
        |election: &Election| election.terms().iter().any(|term| term.candidate != leader);
    assert!(eventually(FOLLOWED, || has_other(&election)), "nobody follows");
    let verdict = judge(election.terms());
    assert!(!verdict.overlaps.is_empty(), "{verdict}");
}

#[test]
fn a_leader_that_was_stopped_knows_at_its_first_look_that_it_is_none() {
    let Some(election) = Election::start(&[HONEST; 2]) else { return };
    let first = election.await_leader();
    election.candidates[first].signal("STOP");
    let diary = || fs::read_to_string(&election.candidates[first].diary).expect("a diary");
    let follows = || election.leader().is_some_and(|leader| leader != first);
    assert!(eventually(FOLLOWED, follows), "nobody follows");
    let before = diary();
    election.candidates[first].signal("CONT");
    assert!(eventually(PATIENCE, || diary().len() > before.len()), "it says nothing");
    let after = diary();
    let first_word = after.get(before.len()..).expect("a diary that grows").split(' ').next();
    assert_eq!(first_word, Some("lost"), "{after}");
}

/// How many times a leader is to be followed, and the TTL of the terms in milliseconds.
fn follows() -> (u64, u64) {
    let variable = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    (variable("REDBOLT_ELECTIONS_FOLLOWS", 5), variable("REDBOLT_ELECTIONS_TTL", TTL_MS))
}

#[test]
fn a_leader_that_is_killed_is_followed() {
    let (count, ttl_ms) = follows();
    let manner = Manner { ttl_ms, ..HONEST };
    let Some(mut election) = Election::start_direct(&[manner; CANDIDATES]) else { return };
    let mut random = StdRng::seed_from_u64(now().as_nanos());
    let mut times = Vec::new();
    for _ in 0..count {
        let leader = election.await_leader();
        // All others wait, and the leader has extended a few times. The kill comes at any point
        // between two extensions.
        std::thread::sleep(ms(random.random_range(ttl_ms * 4 / 5..ttl_ms * 8 / 5)));
        let (killed, terms) = (now(), election.terms().len());
        election.candidates[leader].kill();
        let is_followed = || election.terms().len() > terms;
        assert!(eventually(ms(ttl_ms) + FOLLOWED, is_followed), "nobody follows");
        let next = election.terms().pop().expect("a term").began;
        times.push(Duration::from_nanos(next.saturating_sub(killed.as_nanos())));
        election.replace(leader);
    }
    tell("from a kill to the next leader", &mut times);
}

#[test]
fn a_leader_that_resigns_is_followed() {
    let (count, ttl_ms) = follows();
    let manner = Manner { ttl_ms, resigns_after_ms: ttl_ms / 2, ..HONEST };
    let Some(election) = Election::start_direct(&[manner; CANDIDATES]) else { return };
    let mut times: Vec<Duration> = Vec::new();
    assert!(
        eventually(FOLLOWED + ms(ttl_ms * count), || {
            let terms = election.terms();
            let resigned = terms.windows(2).filter(|pair| pair[0].end == End::Resigned);
            let time = |pair: &[Term]| pair[1].began.saturating_sub(pair[0].over);
            times = resigned.map(|pair| Duration::from_nanos(time(pair))).collect();
            times.len() as u64 >= count
        }),
        "of {count} leaders that resign {} were followed",
        times.len()
    );
    tell("from a resignation to the next leader", &mut times);
    let verdict = judge(election.terms());
    assert!(verdict.overlaps.is_empty(), "{verdict}");
}

/// Prints the times as the row of a table; `REDBOLT_ELECTIONS_FOLLOWS` and `REDBOLT_ELECTIONS_TTL`
/// set how many, and their TTL.
fn tell(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).or_else(|| times.last());
    let [p50, p90, p99, longest] = [50, 90, 99, 100].map(|percent| {
        let time = at(percent).copied().unwrap_or_default();
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    });
    let (_, ttl_ms) = follows();
    let count = times.len();
    println!("| {what} | {ttl_ms} ms | {count} | {p50} | {p90} | {p99} | {longest} |");
}

#[test]
#[ignore = "the process that the tests above start"]
fn one_of_the_candidates() {
    candidate::run();
}
