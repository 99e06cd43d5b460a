//! The cost of a fence: locks with and without one, on the same client and keys.

use std::iter::repeat_n;
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, Guard, IdleStrategy, LockOptions, RestartGuard, Retry, now};

use crate::handover::{Contender, Seen, contend};
use crate::nodes::{Keys, Setup, WAITS, config};
use crate::slices::{CYCLES, alternate, medians, nanos, percentile};
use crate::{Anything, Options};
use redbolt_benches::proxy::delayed;

/// Servers that have just been started do not vote for this long; fences need the guard.
const MAX_TTL: Duration = Duration::from_secs(4);
const SKEW: Duration = Duration::from_millis(500);
const FENCE_TTL: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(2);
const VOTERS: Duration = Duration::from_secs(30);

/// How long contenders take turns, and how long each of them holds the lock.
const TIME: Duration = Duration::from_secs(2);
const HOLD: Duration = Duration::from_micros(100);

pub(crate) fn run(options: &Options) -> Anything {
    println!(
        "| nodes | added round trip | wait | fenced p50 | p50 of unfenced | p99 | p99 of unfenced |"
    );
    println!("|---|---|---|---|---|---|---|");
    for count in [3, 5] {
        let Some(setup) = Setup::new(count)? else { continue };
        for (name, wait) in WAITS {
            row(&setup.addresses, name, wait, Duration::ZERO, options.slices)?;
        }
        if setup.is_tcp() {
            let delay = Duration::from_millis(1);
            let (_proxies, addresses) = delayed(&setup.addresses, repeat_n(delay, count))?;
            row(&addresses, "park", IdleStrategy::Park, delay, options.slices)?;
        }
    }
    let Some(setup) = Setup::new(5)? else { return Ok(()) };
    println!("\nFive nodes, one key, held for {HOLD:?}:\n");
    println!("| clients | turns | hand-over p50 | of unfenced |");
    println!("|---|---|---|---|");
    for clients in [2, 8] {
        let plain = turns(&setup.addresses, clients, &LockOptions::new(TTL))?;
        let fenced = turns(&setup.addresses, clients, &LockOptions::new(TTL).fenced())?;
        let ratio = fenced.p50() / plain.p50();
        println!("| {clients} | {} | {:.1} us | {ratio:.2} |", fenced.turns, fenced.p50());
    }
    Ok(())
}

/// Acquisitions of a client, each of a fresh key, with a fence and without.
fn row(
    addresses: &[String],
    name: &str,
    wait: IdleStrategy,
    added: Duration,
    slices: usize,
) -> Anything {
    let mut context = (client(fit(addresses, wait)?)?, Keys::new());
    let cycles = if added.is_zero() { CYCLES } else { 20 };
    let slice = |(client, keys): &mut (Client, Keys), options: &LockOptions| {
        let mut times = Vec::new();
        for _ in 0..cycles {
            let (key, begin) = (keys.next(), now());
            let lease = client.try_lock(key, options.clone()).wait()?;
            times.push(nanos(begin.until(now())));
            lease.unlock().wait()?;
        }
        Ok(times)
    };
    let (plain, fenced) = (LockOptions::new(TTL), LockOptions::new(TTL).fenced());
    let pairs = alternate(
        slices,
        &mut context,
        |context| slice(context, &plain),
        |context| slice(context, &fenced),
    )?;
    let [_, p50, p50_ratio] = medians(&pairs, |times| percentile(times, 0.5));
    let [_, p99, p99_ratio] = medians(&pairs, |times| percentile(times, 0.99));
    println!(
        "| {} | {} ms | {name} | {p50:.1} us | {p50_ratio:.3} | {p99:.1} us | {p99_ratio:.3} |",
        addresses.len(),
        added.as_millis()
    );
    Ok(())
}

/// A configuration with which fences are allowed.
fn fit(addresses: &[String], wait: IdleStrategy) -> Anything<Config> {
    let config = config(addresses, wait)?.restart_guard(RestartGuard::On).max_ttl(MAX_TTL);
    Ok(config.max_clock_skew(SKEW).fence_ttl(FENCE_TTL))
}

/// A client for which all nodes vote.
fn client(config: Config) -> Anything<Client> {
    let (nodes, begin) = (config.nodes().len(), now());
    let client = Client::open(config)?;
    while client.voters().count() as usize != nodes {
        thread::sleep(Duration::from_millis(1));
        if begin.until(now()) > VOTERS {
            return Err("a node does not vote".into());
        }
    }
    Ok(client)
}

// ---- turns ----

struct Turn {
    client: Client,
    options: LockOptions,
    guard: Option<Guard>,
}

impl Contender for Turn {
    fn lock(&mut self) -> Anything {
        self.guard = Some(self.client.lock("fenced", self.options.clone()).wait()?);
        Ok(())
    }

    fn unlock(&mut self) -> Anything {
        self.guard.take().ok_or("not held")?.unlock().wait()?;
        Ok(())
    }
}

/// The turns of clients that want one key.
fn turns(addresses: &[String], clients: usize, options: &LockOptions) -> Anything<Seen> {
    let retry = Retry::every(Duration::from_millis(200), Duration::from_millis(200));
    let contender = |_| {
        let config = fit(addresses, IdleStrategy::Park)?.retry(retry);
        Ok(Turn { client: client(config)?, options: options.clone(), guard: None })
    };
    let mut contenders = (0..clients).map(contender).collect::<Anything<Vec<_>>>()?;
    contend(&mut contenders, TIME, HOLD)
}
