//! Latency of acquire and release against the raw-socket probe, interleaved in one process.
//!
//! `cargo bench --features embedded --bench acquire` runs on nodes in this process;
//! `REDBOLT_NODES=127.0.0.1:7001,..` names servers instead (Valkey 9 or later). Reported are the
//! medians over alternating slices of the ratio of the two clients' percentiles; nothing is
//! asserted.

mod probe;

use std::error::Error;
use std::time::Duration;

use probe::Probe;
use redbolt::embedded::Nodes;
use redbolt::{Client, Config, RestartGuard, Wait, now};

const SLICES: usize = 40;
const CYCLES: usize = 300;
const TTL: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let named = std::env::var("REDBOLT_NODES").ok();
    println!("nodes  wait  step     probe p50   redbolt p50  ratio p50  ratio p99");
    for count in [1, 3, 5] {
        let nodes = if named.is_none() { Some(Nodes::start(count)?) } else { None };
        let list = nodes
            .as_ref()
            .map_or_else(|| named.clone().unwrap_or_default(), |nodes| nodes.urls().join(","));
        let addresses: Vec<String> = list
            .split(',')
            .take(count)
            .map(|url| url.trim_start_matches("redis://").to_owned())
            .collect();
        if addresses.len() < count {
            continue;
        }
        for wait in [Wait::Park, Wait::Spin] {
            compare(&addresses, wait)?;
        }
    }
    Ok(())
}

/// Times of one slice, in nanoseconds.
#[derive(Default)]
struct Slice {
    acquire: Vec<u64>,
    release: Vec<u64>,
}

fn compare(addresses: &[String], wait: Wait) -> Result<(), Box<dyn Error>> {
    let config = Config::new(addresses)?.restart_guard(RestartGuard::Off).wait(wait);
    let mut client = Client::connect(config)?;
    let mut probe = Probe::connect(addresses, wait == Wait::Spin)?;
    let mut keys = Keys(0);
    slice_of_probe(&mut probe, &mut keys)?;
    slice_of_client(&mut client, &mut keys)?;
    let mut pairs = Vec::new();
    for index in 0..SLICES {
        if index % 2 == 0 {
            let ours = slice_of_client(&mut client, &mut keys)?;
            pairs.push((slice_of_probe(&mut probe, &mut keys)?, ours));
        } else {
            let theirs = slice_of_probe(&mut probe, &mut keys)?;
            pairs.push((theirs, slice_of_client(&mut client, &mut keys)?));
        }
    }
    for name in ["acquire", "release"] {
        let step =
            |slice: &Slice| if name == "acquire" { &slice.acquire } else { &slice.release }.clone();
        let figure = |share: f64, of: &dyn Fn(f64, f64) -> f64| {
            let mut figures: Vec<f64> = pairs
                .iter()
                .map(|(probe, ours)| {
                    of(percentile(&step(probe), share), percentile(&step(ours), share))
                })
                .collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
        };
        println!(
            "{:<6} {:<5} {name} {:>8.1} us {:>10.1} us {:>10.3} {:>10.3}",
            addresses.len(),
            format!("{wait:?}"),
            figure(0.5, &|probe, _| probe) / 1e3,
            figure(0.5, &|_, ours| ours) / 1e3,
            figure(0.5, &|probe, ours| ours / probe),
            figure(0.99, &|probe, ours| ours / probe),
        );
    }
    Ok(())
}

fn slice_of_client(client: &mut Client, keys: &mut Keys) -> Result<Slice, Box<dyn Error>> {
    let mut slice = Slice::default();
    for _ in 0..CYCLES {
        let key = keys.next();
        let begin = now();
        let lease = client.try_lock(key, TTL)?;
        let held = now();
        client.unlock(lease)?;
        slice.acquire.push(nanos(begin.until(held)));
        slice.release.push(nanos(held.until(now())));
    }
    Ok(slice)
}

fn slice_of_probe(probe: &mut Probe, keys: &mut Keys) -> Result<Slice, Box<dyn Error>> {
    let mut slice = Slice::default();
    for _ in 0..CYCLES {
        let key = keys.next();
        probe.prepare_set(&key);
        let begin = now();
        probe.round(b"+OK\r\n".len())?;
        slice.acquire.push(nanos(begin.until(now())));
        probe.prepare_release(&key);
        let begin = now();
        probe.round(b":1\r\n".len())?;
        slice.release.push(nanos(begin.until(now())));
    }
    Ok(slice)
}

/// Fresh keys of 22 bytes.
struct Keys(u64);

impl Keys {
    fn next(&mut self) -> [u8; 22] {
        self.0 += 1;
        let mut key = *b"bench:0000000000000000";
        let mut rest = self.0;
        for digit in key.iter_mut().rev().take(16) {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        key
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn percentile(times: &[u64], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length"
    )]
    let place = (times.len() as f64 * share) as usize;
    times.get(place).or_else(|| times.last()).map_or(f64::NAN, |&nanos| nanos as f64)
}
