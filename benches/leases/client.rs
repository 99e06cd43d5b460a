//! A client with many leases: memory, and its latency against a client with none.

use std::time::Duration;

use redbolt::{Client, Config, Guard, RestartGuard, now, wait_all};
use redbolt_embedded::Nodes;

use crate::Anything;

const TTL: Duration = Duration::from_secs(3600);
const SLICES: usize = 40;
const CYCLES: usize = 300;
const IN_FLIGHT: usize = 512;

/// Holds this many leases, and prints the memory of each and the time to acquire beside them.
pub(crate) fn memory(count: usize) -> Anything {
    let nodes = Nodes::start(3)?;
    let config = || -> Anything<Config> {
        let config = Config::new(nodes.urls())?.restart_guard(RestartGuard::Off).max_ttl(TTL);
        // A node that grows its table of keys is away for a moment, and all nodes do so at the same
        // count.
        Ok(config.node_timeout(Duration::from_secs(30)))
    };
    let (holder, idle) = (Client::connect(config()?)?, Client::connect(config()?)?);
    // The caller's own list is no part of a lease.
    let mut guards: Vec<Guard> = Vec::with_capacity(count);
    let mut result = Ok(());
    let counted = allocation_counter::measure(|| result = hold(&holder, &mut guards, count));
    result?;
    let bytes = counted.bytes_current as f64 / count.max(1) as f64;
    println!("| a client on three nodes | figure |\n|---|---|");
    println!("| bytes of a lease of {count} | {bytes:.0} |");
    let mut pairs = Vec::new();
    let mut key = 0;
    for index in 0..=SLICES {
        let pair = if index % 2 == 0 {
            let with = slice(&holder, &mut key)?;
            (with, slice(&idle, &mut key)?)
        } else {
            let without = slice(&idle, &mut key)?;
            (slice(&holder, &mut key)?, without)
        };
        // The first pair warms up.
        if index > 0 {
            pairs.push(pair);
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let with = median(pairs.iter().map(|pair| pair.0).collect());
    let ratio = median(pairs.iter().map(|pair| pair.0 / pair.1).collect());
    println!("| acquire p50 beside them | {:.1} us |", with / 1e3);
    println!("| acquire of a client without any | {ratio:.3} |");
    // The keys end with the nodes; releasing a million would only take time.
    let begin = now();
    drop(guards);
    println!(
        "| to drop one | {:.0} ns |",
        begin.until(now()).as_nanos() as f64 / count.max(1) as f64
    );
    drop(nodes);
    Ok(())
}

fn hold(client: &Client, guards: &mut Vec<Guard>, count: usize) -> Anything {
    let mut key = *b"lease:0000000000000000";
    while guards.len() < count {
        let more = (guards.len()..count).take(IN_FLIGHT).map(|number| {
            digits(&mut key, number + 1);
            client.try_lock(key, TTL)
        });
        for guard in wait_all(more) {
            guards.push(guard?);
        }
    }
    Ok(())
}

/// The median of a slice's times to acquire, in nanoseconds.
fn slice(client: &Client, count: &mut usize) -> Anything<f64> {
    let mut times = Vec::with_capacity(CYCLES);
    let mut key = *b"bench:0000000000000000";
    for _ in 0..CYCLES {
        *count += 1;
        digits(&mut key, *count);
        let begin = now();
        let lease = client.try_lock(key, TTL).wait()?;
        times.push(begin.until(now()).as_nanos());
        lease.unlock().wait()?;
    }
    times.sort_unstable();
    Ok(times.get(CYCLES / 2).map_or(f64::NAN, |nanos| *nanos as f64))
}

fn digits(key: &mut [u8; 22], mut number: usize) {
    for digit in key.iter_mut().rev().take(16) {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}
