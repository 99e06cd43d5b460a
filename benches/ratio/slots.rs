//! Locks with slots, and readers beside a writer: turns, waits and idle slots, in round trips.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, IdleStrategy, LockOptions, Retry, now};
use redbolt_benches::proxy::{Proxy, delayed};

use crate::nodes::{Setup, config};
use crate::slices::{nanos, percentile};
use crate::{Anything, Options, TTL};

const NODES: usize = 5;
/// Added to each round trip, so that the clients leave their processor idle half of the time.
const ADDED: Duration = Duration::from_millis(20);
/// The same for 64 readers, which take three times as many turns as the other callers.
const ADDED_FOR_MANY: Duration = Duration::from_millis(40);
/// How many round trips each row lasts: over few turns, the share of the least served caller is a
/// matter of chance.
const TRIPS: u32 = 4000;
const SLOTS_MAX: usize = 64;

/// What a caller takes.
type Takes = fn(LockOptions) -> LockOptions;

/// A caller: what it takes, and for how long it holds it.
#[derive(Clone, Copy)]
struct Caller {
    takes: Takes,
    hold: Duration,
    pause: Duration,
}

/// The nodes behind proxies that delay each answer.
struct Network {
    _proxies: Vec<Proxy>,
    addresses: Vec<String>,
    trip: Duration,
}

impl Network {
    fn new(setup: &Setup, added: Duration) -> Anything<Self> {
        let (proxies, addresses) = delayed(&setup.addresses, [added; NODES])?;
        let trip = round_trip(&addresses)?;
        Ok(Self { _proxies: proxies, addresses, trip })
    }
}

pub(crate) fn run(_: &Options) -> Anything {
    let Some(setup) = Setup::new(NODES)? else { return Ok(()) };
    let network = Network::new(&setup, ADDED)?;
    let trip = network.trip;
    println!("Five nodes, a client per caller, a round trip of {trip:?}:\n");
    println!(
        "| callers | slots | held | of the ideal rate | least served | mean wait | wait p50 | wait p99 | idle p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let slots: [(usize, usize, Takes); 4] = [
        (8, 16, |it| it.slots(16)),
        (16, 16, |it| it.slots(16)),
        (8, 3, |it| it.slots(3)),
        (64, 8, |it| it.slots(8)),
    ];
    for (callers, count, takes) in slots {
        for trips in [1, 2] {
            let caller = Caller { takes, hold: trip * trips, pause: Duration::ZERO };
            let seen = turns(&network, &vec![caller; callers])?;
            let [rate, least, mean, p50, p99] = seen.figures(0..callers, &network);
            // A hand-over takes a round trip.
            let ideal = count.min(callers) as f64 / (seen.held + trip).as_secs_f64();
            println!(
                "| {callers} | {count} | {trips} | {:.2} | {least:.2} | {mean:.2} | {p50:.1} | {p99:.1} | {:.1} |",
                rate / ideal,
                in_trips(percentile(&seen.idle, 0.99), trip),
            );
        }
    }
    println!(
        "\n| readers | slots | beside | writer's wait p50 | p99 | readers' turns of those alone |"
    );
    println!("|---|---|---|---|---|---|");
    for (readers, slots, added) in [(16, 16, ADDED), (64, 63, ADDED_FOR_MANY)] {
        let network = Network::new(&setup, added)?;
        let (trip, hold) = (network.trip, network.trip * 2);
        let read: Takes = if slots == 16 { |it| it.read(16) } else { |it| it.read(63) };
        let write: Takes = if slots == 16 { |it| it.write(16) } else { |it| it.write(63) };
        let mut callers = vec![Caller { takes: read, hold, pause: Duration::ZERO }; readers];
        let alone = turns(&network, &callers)?.figures(0..readers, &network)[0];
        callers.push(Caller { takes: write, hold: trip, pause: trip * 50 });
        let seen = turns(&network, &callers)?;
        let [beside, ..] = seen.figures(0..readers, &network);
        let [_, _, _, p50, p99] = seen.figures(readers..readers + 1, &network);
        println!(
            "| {readers} | {slots} | one writer | {p50:.1} | {p99:.1} | {:.2} |",
            beside / alone
        );
    }
    Ok(())
}

struct Seen {
    /// The waits of each caller, in nanoseconds.
    waits: Vec<Vec<u64>>,
    /// From the release of a slot to its next holder, in nanoseconds.
    idle: Vec<u64>,
    /// For how long a lock was held in the middle.
    held: Duration,
}

impl Seen {
    /// Turns per second, the least served caller's part of its fair share, and the waits in round
    /// trips: mean, p50 and p99.
    fn figures(&self, callers: std::ops::Range<usize>, network: &Network) -> [f64; 5] {
        let waits = self.waits.get(callers).unwrap_or_default();
        let all: usize = waits.iter().map(Vec::len).sum();
        let least = waits.iter().map(Vec::len).min().unwrap_or(0);
        let times: Vec<u64> = waits.iter().flatten().copied().collect();
        let sum: u64 = times.iter().sum();
        [
            all as f64 / (network.trip * TRIPS).as_secs_f64(),
            (least * waits.len()) as f64 / all.max(1) as f64,
            in_trips(sum as f64 / 1e3 / all.max(1) as f64, network.trip),
            in_trips(percentile(&times, 0.5), network.trip),
            in_trips(percentile(&times, 0.99), network.trip),
        ]
    }
}

/// Microseconds in round trips.
fn in_trips(micros: f64, trip: Duration) -> f64 {
    micros / 1e6 / trip.as_secs_f64()
}

fn round_trip(addresses: &[String]) -> Anything<Duration> {
    let client = Client::connect(config(addresses, IdleStrategy::Park)?)?;
    let mut times = Vec::new();
    for nth in 0..200 {
        let begin = now();
        let guard = client.try_lock(format!("trip:{nth}"), TTL).wait()?;
        times.push(nanos(begin.until(now())));
        guard.unlock().wait()?;
    }
    Ok(Duration::from_secs_f64(percentile(&times, 0.5) / 1e6))
}

/// All callers take the lock again and again.
fn turns(network: &Network, callers: &[Caller]) -> Anything<Seen> {
    let is_over = AtomicBool::new(false);
    let left: [AtomicU64; SLOTS_MAX] = std::array::from_fn(|_| AtomicU64::new(0));
    let name = format!("slots:{}", now().as_nanos());
    let ended = thread::scope(|scope| {
        let mut threads = Vec::new();
        for caller in callers {
            let retry = Retry::every(Duration::from_millis(200), Duration::from_millis(200));
            let client =
                Client::connect(config(&network.addresses, IdleStrategy::Park)?.retry(retry))?;
            let (is_over, left, name) = (&is_over, &left, &name);
            threads.push(scope.spawn(move || {
                let (mut waits, mut idle, mut held) = (Vec::new(), Vec::new(), Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    let begin = now();
                    let options = (caller.takes)(LockOptions::new(TTL));
                    let Ok(guard) = client.lock(name, options).wait() else { continue };
                    let won = now();
                    waits.push(nanos(begin.until(won)));
                    let place = guard.slot().and_then(|slot| left.get(slot));
                    let before = place.map_or(0, |place| place.swap(0, Ordering::Relaxed));
                    if before > 0 {
                        idle.push(won.as_nanos().saturating_sub(before));
                    }
                    thread::sleep(caller.hold);
                    held.push(nanos(won.until(now())));
                    if let Some(place) = place {
                        place.store(now().as_nanos(), Ordering::Relaxed);
                    }
                    drop(guard);
                    thread::sleep(caller.pause);
                }
                (waits, idle, held)
            }));
        }
        thread::sleep(network.trip * TRIPS);
        is_over.store(true, Ordering::Relaxed);
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_default());
        Ok::<_, Box<dyn std::error::Error>>(ended.collect::<Vec<_>>())
    })?;
    let idle: Vec<u64> = ended.iter().flat_map(|(_, idle, _)| idle.iter().copied()).collect();
    let held: Vec<u64> = ended.iter().flat_map(|(.., held)| held.iter().copied()).collect();
    let held = Duration::from_secs_f64(percentile(&held, 0.5) / 1e6);
    Ok(Seen { waits: ended.into_iter().map(|(waits, ..)| waits).collect(), idle, held })
}
