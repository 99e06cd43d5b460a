//! How long a key is free between the turns of several calls of one driver, which all want it again
//! at once. The time runs from the holder's release to the completion of the next call.

use std::time::Duration;

use redbolt::Instant;
use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Driver, Outcome};
use redbolt::{Config, IdleStrategy, Lease, LockOptions, Retry, now};
use redbolt_benches::probe::wait_for;

use crate::nodes::{Setup, config};
use crate::slices::percentile;
use crate::{Anything, Options, TTL};

const NODES: usize = 5;

/// How long each row is measured.
const TIME: Duration = Duration::from_secs(2);

const HOLD: Duration = Duration::from_micros(100);

/// The row has failed if no call gets the lock for this long.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(_: &Options) -> Anything {
    let Some(setup) = Setup::new(NODES)?.filter(Setup::is_tcp) else {
        println!("needs {NODES} nodes over TCP");
        return Ok(());
    };
    println!("held for {HOLD:?}:\n");
    println!("| calls | gap p50 | p99 | longest | turns per second |");
    println!("|---|---|---|---|---|");
    for calls in [2, 8, 64] {
        let gaps = gaps(config(&setup.addresses, IdleStrategy::Park)?, calls)?;
        let micros = |share| percentile(&gaps, share);
        let longest = gaps.iter().max().copied().unwrap_or(0) as f64 / 1e3;
        let turns = gaps.len() as f64 / TIME.as_secs_f64();
        println!(
            "| {calls} | {:.1} us | {:.1} us | {longest:.1} us | {turns:.0} |",
            micros(0.5),
            micros(0.99),
        );
    }
    Ok(())
}

/// The nanoseconds of each gap.
fn gaps(config: Config, calls: usize) -> Anything<Vec<u64>> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);
    let mut driver = Driver::new(config, poll.registry(), 0..64)?;
    let mut pass = |driver: &mut Driver| -> Anything {
        let wait = driver.timeout().unwrap_or(PATIENCE).min(PATIENCE);
        wait_for(&mut poll, &mut events, IdleStrategy::Park, Some(wait))?;
        for event in &events {
            driver.ready(event);
        }
        driver.drive();
        Ok(())
    };
    driver.drive();
    while driver.voters().count() < 5 {
        pass(&mut driver)?;
    }
    let retry = Retry::every(Duration::from_millis(200), Duration::from_millis(200));
    let acquire = || LockOptions::new(TTL).retry(retry);
    // The calls that go on at the end may leave a key behind.
    let key = format!("siblings:{calls}");
    for _ in 0..calls {
        driver.lock(&key, acquire())?;
    }
    driver.drive();
    let (mut gaps, begin) = (Vec::new(), now());
    let (mut held, mut free_since): (Option<(Lease, Instant)>, _) = (None, now());
    while begin.until(now()) < TIME {
        if let Some((_, since)) = &held
            && since.until(now()) >= HOLD
        {
            free_since = now();
            held = None;
            driver.drive();
            // The new call queues behind the others.
            driver.lock(&key, acquire())?;
            driver.drive();
        }
        if held.is_none() {
            pass(&mut driver)?;
        }
        while let Some(done) = driver.completion() {
            if let Outcome::Lock(result) = done.result {
                let lease = result?;
                gaps.push(u64::try_from(free_since.until(now()).as_nanos())?);
                held = Some((lease, now()));
            }
        }
        if free_since.until(now()) > PATIENCE {
            return Err("nobody has the lock".into());
        }
    }
    drop(held);
    driver.shutdown(Duration::from_millis(100));
    Ok(gaps)
}
