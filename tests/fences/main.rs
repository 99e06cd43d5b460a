//! Fences on five real servers of five versions, before a judge: clients overrun their leases and
//! go on writing, their wall clocks lie, and nodes stand still and die.
//!
//! `REDBOLT_FENCES=1000000` makes that many acquisitions in each run. `REDBOLT_SEED=S` draws the
//! same choices again, but threads and servers meet in another order.

#![expect(clippy::print_stdout, reason = "the seeds and the counts are what the test is for")]
#![expect(clippy::indexing_slicing, reason = "a test may end where it is wrong itself")]

mod judge;
mod nodes;
mod obvious;
mod player;
mod resource;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use redbolt::now;
use redbolt_rig::{Cluster, Kind, StopAtEnd, eventually};

use judge::judge;
use nodes::{Faults, Memory};
use player::{CLIENTS, KEYS, Run};
use resource::Writes;

/// Acquisitions of a run by default.
const ACQUISITIONS: u64 = 10_000;
/// How long a run may make no progress.
const STANDSTILL: Duration = Duration::from_secs(30);
/// Acquisitions between two faults.
const BETWEEN: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn seed() -> u64 {
    let seed = number("REDBOLT_SEED").unwrap_or_else(|| now().as_nanos());
    println!("REDBOLT_SEED={seed}");
    seed
}

#[test]
fn fences_are_in_order_while_nodes_die_and_keep_what_they_wrote() {
    run(Memory::Kept);
}

#[test]
fn fences_are_in_order_while_nodes_die_and_forget_behind_the_guard() {
    run(Memory::Lost);
}

#[test]
fn the_judge_finds_the_obvious_design_out() {
    let Some(cluster) = Cluster::start(&Kind::ALL, &[]) else { return };
    let (seed, run) = (seed(), Run::new());
    let grants = thread::scope(|scope| {
        let play = |me| {
            let (run, cluster) = (&run, &cluster);
            scope.spawn(move || obvious::play(me, run, cluster, seed))
        };
        let players: Vec<_> = (0..CLIENTS).map(play).collect();
        let stop = StopAtEnd(&run.is_over);
        let is_enough = eventually(STANDSTILL, || run.acquired.load(Ordering::Relaxed) >= 1_000);
        assert!(is_enough, "too few acquisitions to judge");
        drop(stop);
        let grants = players.into_iter().map(|player| player.join().expect("a client ends"));
        grants.flatten().collect::<Vec<_>>()
    });
    let count = grants.len();
    let verdict = judge(grants);
    println!("obvious: {count} acquisitions: {verdict}");
    assert!(verdict.duplicates > 0 && verdict.inversions > 0, "{verdict}");
    assert_eq!(verdict.overlaps, 0, "the locks themselves are sound");
}

fn run(memory: Memory) {
    let Some(mut cluster) = nodes::start(memory) else { return };
    let (seed, run, urls) = (seed(), Run::new(), cluster.urls());
    let wanted = number("REDBOLT_FENCES").unwrap_or(ACQUISITIONS);
    let begin = now();
    let (faults, players) = thread::scope(|scope| {
        let play = |me| {
            let (run, urls) = (&run, &urls);
            scope.spawn(move || player::play(me, run, urls, seed))
        };
        let players: Vec<_> = (0..CLIENTS).map(play).collect();
        let stop = StopAtEnd(&run.is_over);
        let faults = trouble(memory, &mut cluster, &run, wanted, seed);
        drop(stop);
        let played = players.into_iter().map(|player| player.join().expect("a client ends"));
        (faults, played.collect::<Vec<_>>())
    });
    let time = begin.until(now());
    // All nodes were there at the end, so every release was written and only counters are left.
    let owed: usize = players.iter().map(|played| played.owed).sum();
    let left: usize = (0..KEYS).map(|index| cluster.holders(&player::key(index))).sum();

    let sum = |of: fn(&player::Played) -> u64| players.iter().map(of).sum::<u64>();
    let writes = Writes::of(&run.resources);
    let [overrun, ahead] = [sum(|it| it.overrun), sum(|it| it.ahead)];
    let [taken, failed] = [sum(|it| it.taken), sum(|it| it.failed)];
    let grants: Vec<_> = players.into_iter().flat_map(|played| played.grants).collect();
    let count = grants.len();
    let verdict = judge(grants);
    println!(
        "{memory:?}: {count} acquisitions in {:.0} s, {overrun} overrun, {ahead} above the clock of \
         their holder; {taken} calls found the lock taken, {failed} no quorum; {} kills, {} freezes",
        time.as_secs_f64(),
        faults.kills,
        faults.freezes
    );
    println!(
        "| {} | {count} | {overrun} | {} | {} | {} | {} | {} | {} |",
        format!("{memory:?}").to_lowercase(),
        faults.kills,
        faults.freezes,
        writes.accepted,
        writes.refused,
        verdict.duplicates,
        verdict.inversions
    );
    println!("{memory:?}: {verdict}");
    println!(
        "{memory:?}: {} writes accepted, {} refused, {} after a higher fence, {} stale",
        writes.accepted, writes.refused, writes.lower, writes.stale
    );
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!((writes.lower, writes.stale), (0, 0), "the gate let a stale write through");
    assert_eq!((owed, left), (0, 0), "keys are left behind");
    let has_shown = [overrun, ahead, verdict.ordered, writes.refused, faults.kills, faults.freezes];
    assert!(has_shown.iter().all(|&count| count > 0), "nothing is shown: {has_shown:?}");
}

/// Inflicts faults, one after the other, until there are as many acquisitions as wanted. Each is
/// over before the next: all clients count all nodes as voters again.
fn trouble(memory: Memory, cluster: &mut Cluster, run: &Run, wanted: u64, seed: u64) -> Faults {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut faults, mut rounds) = (Faults::default(), 0);
    loop {
        let is_whole = eventually(STANDSTILL, || run.are_all_voting(cluster.len()));
        assert!(is_whole, "a node does not vote again");
        let acquired = run.acquired.load(Ordering::Relaxed);
        let goes_on = || run.acquired.load(Ordering::Relaxed) >= acquired + BETWEEN;
        assert!(eventually(STANDSTILL, goes_on), "no acquisitions");
        if rounds >= nodes::FAULTS_MIN && acquired >= wanted {
            return faults;
        }
        nodes::inflict(rounds, memory, cluster, &mut random, &mut faults);
        rounds += 1;
    }
}
