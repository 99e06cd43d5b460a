//! Locks that linger: how long a `Client` needs to take one again, and how long another client
//! needs to get one. The same times for a free lock stand beside them. One of the other clients
//! lets its locks linger too, and one does not.

use std::time::Duration;

use redbolt::{Client, Config, IdleStrategy, LockOptions, now};

use crate::nodes::{Setup, config};
use crate::slices::{nanos, percentile};
use crate::{Anything, Options, TTL};
use redbolt_benches::proxy::delayed;

const NODES: usize = 5;

/// How many locks the client takes again, in rounds of as many as one SET serves.
const RETAKEN: usize = 20_000;

/// How many locks another client takes, by turns free and lingering.
const TAKEN: usize = 200;

/// The delay added to the round trips of loopback, in milliseconds.
const ADDED: [u64; 3] = [0, 1, 10];

pub(crate) fn run(_: &Options) -> Anything {
    let Some(setup) = Setup::new(NODES)?.filter(Setup::is_tcp) else {
        println!("needs {NODES} nodes over TCP");
        return Ok(());
    };
    let times = retaken(config(&setup.addresses, IdleStrategy::Park)?)?;
    let nanos = |share| 1e3 * percentile(&times, share);
    println!("| taken again | p50 | p99 |\n|---|---|---|");
    println!("| through a Client | {:.0} ns | {:.0} ns |", nanos(0.5), nanos(0.99));
    println!(
        "\n| added round trip | another's lock | free | lingering | of that |\n|---|---|---|---|---|"
    );
    for added in ADDED {
        let (_proxies, far) = delayed(&setup.addresses, [Duration::from_millis(added); NODES])?;
        let addresses = if added > 0 { &far } else { &setup.addresses };
        for way in [("lingers too", options()), ("does not", LockOptions::new(TTL))] {
            by_another(added, way, config(addresses, IdleStrategy::Park)?)?;
        }
    }
    Ok(())
}

/// Options with time for a slow machine.
fn options() -> LockOptions {
    LockOptions::new(TTL).linger(TTL)
}

/// The time from the call to the lease. The first of a round, which needs the nodes, does not
/// count.
fn retaken(config: Config) -> Anything<Vec<u64>> {
    let shared = Client::connect(config)?;
    let mut times = Vec::new();
    while times.len() < RETAKEN {
        for turn in 0..60 {
            let begin = now();
            let guard = shared.try_lock("bench:lingers", options()).wait()?;
            if turn > 0 {
                times.push(nanos(begin.until(now())));
            }
            drop(guard);
        }
        shared.try_lock("bench:lingers", LockOptions::new(TTL)).wait()?.unlock().wait()?;
    }
    shared.shutdown(TTL).wait();
    Ok(times)
}

fn by_another(added: u64, (way, others): (&str, LockOptions), config: Config) -> Anything {
    let shared = Client::connect(config.clone())?;
    let other = Client::connect(config)?;
    let (mut free, mut lingering) = (Vec::new(), Vec::new());
    for nth in 0..TAKEN {
        let key = format!("bench:another:{way}:{nth}");
        let is_lingering = nth % 2 == 1;
        if is_lingering {
            drop(shared.lock(&key, options()).wait()?);
        }
        let begin = now();
        let guard = other.lock(&key, others.clone()).wait()?;
        let time = nanos(begin.until(now()));
        guard.unlock().wait()?;
        if is_lingering { lingering.push(time) } else { free.push(time) }
    }
    shared.shutdown(TTL).wait();
    other.shutdown(TTL).wait();
    let (free, lingering) = (percentile(&free, 0.5), percentile(&lingering, 0.5));
    let of_that = lingering / free;
    println!("| {added} ms | {way} | {free:.0} us | {lingering:.0} us | {of_that:.2} |");
    Ok(())
}
