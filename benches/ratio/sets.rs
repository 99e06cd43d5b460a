//! Several keys under one guard: their latency beside that of one key, and the turns of clients whose
//! sets overlap.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::inspect::Query;
use redbolt::{Client, IdleStrategy, Retry, now};
use redbolt_benches::probe::{Commands, Probe};

use crate::nodes::{Keys, Setup, config, probe};
use crate::slices::{CYCLES, alternate, medians, nanos, percentile};
use crate::{Anything, Options, TTL};

const KEYS: usize = 5;
const CLIENTS: usize = 8;
const TIME: Duration = Duration::from_secs(4);
const HOLD: Duration = Duration::from_micros(100);

pub(crate) fn run(options: &Options) -> Anything {
    println!(
        "| nodes | keys | by | p50 of all at once | of one key's | the same with bare sockets | \
         p50 of one after the other |"
    );
    println!("|---|---|---|---|---|---|---|");
    let Some(setup) = Setup::new(5)? else { return Ok(()) };
    // First one node, which has a core to itself, then five nodes that share a core.
    for nodes in [1, 5] {
        let addresses = setup.addresses.get(..nodes).unwrap_or_default();
        for count in [1, 2, 10, 64] {
            latency(addresses, addresses, (count, "MSETEX"), options.slices)?;
        }
        if let Some(with_user) = without_msetex(addresses)? {
            latency(&with_user, addresses, (10, "SET"), options.slices)?;
        }
    }
    println!("\nFive nodes, five keys, each held for {HOLD:?}, a client per caller:\n");
    println!("| callers | keys of each | turns per second | least served | wait p50 | wait p99 |");
    println!("|---|---|---|---|---|---|");
    turns(&setup.addresses, true, false)?;
    turns(&setup.addresses, true, true)
}

/// The addresses with a user that may not run the command, so that its calls ask by SETs. `None` if
/// the nodes have no users.
fn without_msetex(addresses: &[String]) -> Anything<Option<Vec<String>>> {
    let client = Client::connect(config(addresses, IdleStrategy::Park)?)?;
    let words: [&[u8]; 10] = [
        b"ACL", b"SETUSER", b"plain", b"reset", b"on", b"nopass", b"~*", b"&*", b"+@all",
        b"-msetex",
    ];
    let answers = client.query(&Query::new().all(&words)).wait()?;
    let is_refused = answers.iter().flat_map(|it| &it.replies).any(|it| it.text() != Some(b"OK"));
    let with_user = |address: &String| format!("redis://plain:any@{address}");
    Ok((!is_refused).then(|| addresses.iter().map(with_user).collect()))
}

/// The time that bare sockets take for `count` keys, divided by their time for one key.
fn bare(addresses: &[String], (count, by): (usize, &str), slices: usize) -> Anything<f64> {
    let mut context = (probe(addresses, IdleStrategy::Park)?, Commands::new());
    let cycles = (CYCLES / count).max(20);
    let slice = |(probe, commands): &mut (Probe, Commands), count: usize| {
        let mut times = Vec::new();
        for _ in 0..cycles {
            let begin = now();
            match (count, by) {
                (1, _) => probe.round(commands.only_sets(1))?,
                (_, "MSETEX") => probe.round(commands.only_msetex(count))?,
                (..) => probe.round_of(commands.only_sets(count), count)?,
            }
            times.push(nanos(begin.until(now())));
            probe.round_of(commands.only_releases(), count)?;
        }
        Ok(times)
    };
    let all = alternate(slices, &mut context, |it| slice(it, 1), |it| slice(it, count))?;
    let [_, _, ratio] = medians(&all, |times| percentile(times, 0.5));
    Ok(ratio)
}

/// `count` keys by one call, beside one key, and beside `count` calls one after the other. The bare
/// sockets use the addresses without a user.
fn latency(
    addresses: &[String],
    plain: &[String],
    (count, by): (usize, &str),
    slices: usize,
) -> Anything {
    let client = Client::connect(config(addresses, IdleStrategy::Park)?)?;
    let mut context = (client, Keys::new());
    let cycles = (CYCLES / count).max(20);
    let at_once = |(client, keys): &mut (Client, Keys), count: usize| {
        let mut times = Vec::new();
        for _ in 0..cycles {
            let set: Vec<_> = (0..count).map(|_| keys.next()).collect();
            let begin = now();
            let guard = client.try_lock_all(&set, TTL).wait()?;
            times.push(nanos(begin.until(now())));
            guard.unlock().wait()?;
        }
        Ok(times)
    };
    let by_turns = |(client, keys): &mut (Client, Keys)| {
        let mut times = Vec::new();
        for _ in 0..cycles {
            let begin = now();
            let guards: Result<Vec<_>, _> =
                (0..count).map(|_| client.try_lock(keys.next(), TTL).wait()).collect();
            times.push(nanos(begin.until(now())));
            drop(guards?);
        }
        Ok(times)
    };
    let one = alternate(slices, &mut context, |it| at_once(it, 1), |it| at_once(it, count))?;
    let [_, p50, ratio] = medians(&one, |times| percentile(times, 0.5));
    let each = alternate(slices, &mut context, |it| at_once(it, count), by_turns)?;
    let [_, loop_p50, _] = medians(&each, |times| percentile(times, 0.5));
    let bare = bare(plain, (count, by), slices)?;
    println!(
        "| {} | {count} | {by} | {p50:.1} us | {ratio:.2} | {bare:.2} | {loop_p50:.1} us |",
        addresses.len()
    );
    Ok(())
}

/// Eight clients with two or three of the keys each, and eight with one key each beside them.
fn turns(addresses: &[String], has_sets: bool, has_singles: bool) -> Anything {
    let is_over = AtomicBool::new(false);
    let kinds = [has_sets.then_some(true), has_singles.then_some(false)];
    let waits = thread::scope(|scope| {
        let mut callers = Vec::new();
        for (nth, is_set) in
            kinds.into_iter().flatten().flat_map(|kind| (0..CLIENTS).map(move |nth| (nth, kind)))
        {
            let retry = Retry::every(Duration::from_millis(200), Duration::from_millis(200));
            let client = Client::connect(config(addresses, IdleStrategy::Park)?.retry(retry))?;
            let is_over = &is_over;
            let caller = scope.spawn(move || {
                let mut times = Vec::new();
                // The keys of a turn, by a small generator of its own.
                let mut seed = nth as u64 * 2 + u64::from(is_set) + 1;
                while !is_over.load(Ordering::Relaxed) {
                    seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767);
                    let random = (seed >> 33) as usize;
                    let count = if is_set { 2 + random % 2 } else { 1 };
                    let set: Vec<String> = (0..count)
                        .map(|nth| format!("set:{}", (random / 2 + nth) % KEYS))
                        .collect();
                    let begin = now();
                    let Ok(guard) = client.lock_all(&set, TTL).wait() else { continue };
                    times.push(nanos(begin.until(now())));
                    thread::sleep(HOLD);
                    drop(guard);
                }
                times
            });
            callers.push((is_set, caller));
        }
        thread::sleep(TIME);
        is_over.store(true, Ordering::Relaxed);
        let ended = callers.into_iter();
        Ok::<_, Box<dyn std::error::Error>>(
            ended
                .map(|(is_set, caller)| (is_set, caller.join().unwrap_or_default()))
                .collect::<Vec<_>>(),
        )
    })?;
    for is_set in kinds.into_iter().flatten() {
        let of_kind: Vec<_> = waits.iter().filter(|(kind, _)| *kind == is_set).collect();
        let counts = of_kind.iter().map(|(_, times)| times.len());
        let (least, all) = (counts.clone().min().unwrap_or(0), counts.sum::<usize>());
        let mut times: Vec<u64> =
            of_kind.iter().flat_map(|(_, times)| times.iter().copied()).collect();
        times.sort_unstable();
        println!(
            "| {} | {} | {:.0} | {:.2} | {:.1} us | {:.1} us |",
            waits.len(),
            if is_set { "2 or 3" } else { "1" },
            all as f64 / TIME.as_secs_f64(),
            least as f64 * of_kind.len() as f64 / all.max(1) as f64,
            percentile(&times, 0.5),
            percentile(&times, 0.99)
        );
    }
    Ok(())
}
