//! A client with many leases: memory, and its latency against a client with none.

use std::time::Duration;

use redbolt::driver::Outcome;
use redbolt::{Client, Config, Lease, RestartGuard, now};
use redbolt_embedded::Nodes;

use crate::Anything;

const TTL: Duration = Duration::from_secs(3600);
const SLICES: usize = 40;
const CYCLES: usize = 300;
const IN_FLIGHT: usize = 512;

/// Holds so many leases; says what each takes, and what acquiring costs beside them.
pub(crate) fn memory(count: usize) -> Anything {
    let nodes = Nodes::start(3)?;
    let config = || -> Anything<Config> {
        let config = Config::new(nodes.urls())?.restart_guard(RestartGuard::Off).max_ttl(TTL);
        // A node that grows its table of keys is away for a moment, and all do at the same count.
        Ok(config.node_timeout(Duration::from_secs(30)))
    };
    let (mut holder, mut idle) = (Client::connect(config()?)?, Client::connect(config()?)?);
    // The caller's own list is no part of a lease.
    let mut leases: Vec<Lease> = Vec::with_capacity(count);
    let mut result = Ok(());
    let counted = allocation_counter::measure(|| result = hold(&mut holder, &mut leases, count));
    result?;
    let bytes = counted.bytes_current as f64 / count.max(1) as f64;
    println!("| a client on three nodes | figure |\n|---|---|");
    println!("| bytes a lease, of {count} | {bytes:.0} |");
    let mut pairs = Vec::new();
    let mut key = 0;
    for index in 0..=SLICES {
        let pair = if index % 2 == 0 {
            let with = slice(&mut holder, &mut key)?;
            (with, slice(&mut idle, &mut key)?)
        } else {
            let without = slice(&mut idle, &mut key)?;
            (slice(&mut holder, &mut key)?, without)
        };
        // The first warms up.
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
    println!("| of a client without any | {ratio:.3} |");
    // Their keys end with the nodes; releasing a million would only take time.
    let begin = now();
    drop(leases);
    println!(
        "| to drop one | {:.0} ns |",
        begin.until(now()).as_nanos() as f64 / count.max(1) as f64
    );
    drop(nodes);
    Ok(())
}

fn hold(client: &mut Client, leases: &mut Vec<Lease>, count: usize) -> Anything {
    let mut batch = client.batch();
    let mut begun = 0;
    let mut key = *b"lease:0000000000000000";
    while leases.len() < count {
        while begun < count && batch.in_flight() < IN_FLIGHT {
            begun += 1;
            digits(&mut key, begun);
            batch.try_lock(key, TTL)?;
        }
        let mut done = batch.wait_completion()?;
        while let Some(completion) = done {
            if let Outcome::Lock(lease) = completion.result {
                leases.push(lease?);
            }
            done = batch.completion();
        }
    }
    Ok(())
}

/// The median of a slice's times to acquire, in nanoseconds.
fn slice(client: &mut Client, count: &mut usize) -> Anything<f64> {
    let mut times = Vec::with_capacity(CYCLES);
    let mut key = *b"bench:0000000000000000";
    for _ in 0..CYCLES {
        *count += 1;
        digits(&mut key, *count);
        let begin = now();
        let lease = client.try_lock(key, TTL)?;
        times.push(begin.until(now()).as_nanos());
        client.unlock(lease)?;
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
