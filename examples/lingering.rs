//! A service whose keys mostly come back to the same process, with and without locks that linger.
//! The process of a customer touches that customer's order many times in a row. Now and then
//! another process touches it.
//!
//! Run it with `cargo run --release --example lingering`, or with `REDBOLT_NODES` set.

mod common;

use std::time::Duration;

use redbolt::{Client, Config, LockError, LockOptions, now};

const TTL: Duration = Duration::from_secs(5);
const LINGER: Duration = Duration::from_millis(500);
const ORDERS: u32 = 20;
/// Steps of one order, one right after the other.
const STEPS: u32 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let found = common::nodes()?;
    let plain = serve(&found.urls, LockOptions::new(TTL))?;
    let lingering = serve(&found.urls, LockOptions::new(TTL).linger(LINGER))?;
    println!("                      step   p50     another process's step   p50");
    println!("released each time  {plain}");
    println!("lingering           {lingering}");
    if lingering.step >= plain.step {
        return Err("a lock that lingers was no faster to take again".into());
    }
    Ok(())
}

struct Times {
    step: Duration,
    other: Duration,
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>14.1?}   {:>24.1?}", self.step, self.other)
    }
}

/// Works through the orders. After each order, a second client, in place of another process, takes
/// its lock. Returns the median of the steps, up to the guard's end, and of the second client's
/// waits.
fn serve(urls: &[String], options: LockOptions) -> Result<Times, Box<dyn std::error::Error>> {
    let client = Client::connect(Config::new(urls)?)?;
    let other = Client::connect(Config::new(urls)?)?;
    let (mut steps, mut others) = (Vec::new(), Vec::new());
    for order in 0..ORDERS {
        let key = format!("order:{order}");
        for _ in 0..STEPS {
            let begin = now();
            step(&client, &key, &options)?;
            steps.push(begin.until(now()));
        }
        let begin = now();
        let lease = other.lock(&key, TTL).wait()?;
        others.push(begin.until(now()));
        lease.unlock().wait()?;
    }
    let owed = client.shutdown(Duration::from_secs(1)).wait();
    if owed > 0 {
        return Err(format!("{owed} releases are owed").into());
    }
    Ok(Times { step: median(steps), other: median(others) })
}

fn step(client: &Client, key: &str, options: &LockOptions) -> Result<(), LockError> {
    let guard = client.lock(key, options.clone()).wait()?;
    // Here the service would change the order, while the guard is valid.
    std::hint::black_box(guard.is_valid());
    drop(guard);
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
