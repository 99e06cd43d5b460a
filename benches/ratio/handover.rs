//! How fast a held lock goes from one client to the next: each client a thread with connections of
//! its own, all wanting the same key again at once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, RestartGuard, Retry, Wait, now};

use crate::nodes::Setup;
use crate::slices::percentile;
use crate::{Anything, Options, TTL};

/// How long each row is measured.
const TIME: Duration = Duration::from_secs(4);

const NODES: usize = 5;

const SPIN: Wait = Wait::SpinThenPark(Duration::from_micros(50));

/// What the contenders share.
#[derive(Default)]
struct Turns {
    is_over: AtomicBool,
    /// When the last holder let go, in nanoseconds, and who that was.
    released_at: AtomicU64,
    holder: AtomicUsize,
    is_held: AtomicBool,
}

/// What one contender saw: the nanoseconds of each change of hands, and its turns.
type Seen = (Vec<u64>, u64);

pub(crate) fn run(_: &Options) -> Anything {
    let Some(setup) = Setup::new(NODES)? else { return Ok(()) };
    for (name, wait) in [("park", Wait::Park), ("spin 50 us, then park", SPIN)] {
        run_with(&setup, name, wait)?;
    }
    Ok(())
}

fn run_with(setup: &Setup, name: &str, wait: Wait) -> Anything {
    let acquire = uncontended(setup, wait)?;
    println!("{name}: alone, acquire p50 {:.1} us\n", acquire as f64 / 1e3);
    println!(
        "| clients | held | hand-over p50 | of acquire | p99 | changes a second | least of mean | \
         commands a turn |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (clients, hold) in [(2, 100), (8, 100), (8, 1_000), (64, 100)] {
        let before = commands(setup)?;
        let (times, turns) = contend(setup, wait, clients, Duration::from_micros(hold))?;
        let asked = commands(setup)? - before;
        let p50 = percentile(&times, 0.5);
        let mean = turns.iter().sum::<u64>() as f64 / turns.len() as f64;
        let least = turns.iter().copied().min().unwrap_or(0) as f64 / mean;
        println!(
            "| {clients} | {hold} us | {:.1} us | {:.2} | {:.1} us | {:.0} | {least:.2} | {:.1} |",
            p50,
            p50 * 1e3 / acquire as f64,
            percentile(&times, 0.99),
            times.len() as f64 / TIME.as_secs_f64(),
            asked as f64 / times.len() as f64,
        );
    }
    println!();
    Ok(())
}

/// What all nodes have run so far; nothing where they do not say.
fn commands(setup: &Setup) -> Anything<u64> {
    let mut sum = 0;
    for address in setup.addresses.iter().filter(|_| setup.is_tcp()) {
        let mut node = TcpStream::connect(address)?;
        node.write_all(b"INFO stats\r\nQUIT\r\n")?;
        let mut said = String::new();
        node.read_to_string(&mut said)?;
        let count = said.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        sum += count.and_then(|count| count.parse().ok()).unwrap_or(0);
    }
    Ok(sum)
}

fn client(setup: &Setup, wait: Wait) -> Anything<Client> {
    let config = Config::new(&setup.addresses)?
        .wait(wait)
        .restart_guard(RestartGuard::Off)
        .node_timeout(Duration::from_millis(500))
        .retry(Retry::every(Duration::from_millis(200), Duration::from_millis(200)));
    Ok(Client::connect(config)?)
}

/// The median nanoseconds of an acquisition that nobody contends.
fn uncontended(setup: &Setup, wait: Wait) -> Anything<u64> {
    let mut client = client(setup, wait)?;
    let mut times = Vec::new();
    for _ in 0..5_000 {
        let begin = now();
        let lease = client.try_lock("alone", TTL)?;
        times.push(u64::try_from(begin.until(now()).as_nanos())?);
        client.unlock(lease)?;
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().ok_or_else(|| "no time was taken".into())
}

/// All hand-overs among so many clients, and the turns of each.
fn contend(
    setup: &Setup,
    wait: Wait,
    clients: usize,
    hold: Duration,
) -> Anything<(Vec<u64>, Vec<u64>)> {
    let turns = Turns::default();
    let contenders = (0..clients)
        .map(|_| client(setup, wait))
        .collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    let seen: Vec<Option<Seen>> = thread::scope(|scope| {
        let threads: Vec<_> = contenders
            .into_iter()
            .zip(1..)
            .map(|(client, me)| {
                let turns = &turns;
                scope.spawn(move || take_turns(client, me, turns, hold))
            })
            .collect();
        thread::sleep(TIME);
        turns.is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let mut times = Vec::new();
    let mut counts = Vec::new();
    for (handed, count) in seen.into_iter().flatten() {
        times.extend(handed);
        counts.push(count);
    }
    if counts.len() < clients { Err("a contender failed".into()) } else { Ok((times, counts)) }
}

/// Takes turns until it is over; `None` if a call failed.
fn take_turns(mut client: Client, me: usize, turns: &Turns, hold: Duration) -> Option<Seen> {
    let (mut handed, mut count) = (Vec::new(), 0);
    while !turns.is_over.load(Ordering::Relaxed) {
        let lease = client.lock("contended", TTL).ok()?;
        let begin = now();
        assert!(!turns.is_held.swap(true, Ordering::SeqCst), "two hold one lock");
        if turns.holder.swap(me, Ordering::Relaxed) != me {
            let released_at = turns.released_at.load(Ordering::SeqCst);
            handed.push(begin.as_nanos().saturating_sub(released_at));
            count += 1;
        }
        while begin.until(now()) < hold {
            std::hint::spin_loop();
        }
        turns.released_at.store(now().as_nanos(), Ordering::SeqCst);
        turns.is_held.store(false, Ordering::SeqCst);
        client.unlock(lease).ok()?;
    }
    Some((handed, count))
}
