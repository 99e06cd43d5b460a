//! A trading loop that never sleeps, with locks in it. Each pass polls the market and the driver,
//! and costs a microsecond whether a lock is under way or not.
//!
//! Two desks see the same signals; the desk that gets a signal's lock trades it, and keeps the lock
//! until the end. This desk spins; its rival is an ordinary blocking client. At the end the loop
//! prints how long its passes took, and how often the operating system put its thread to sleep.
//!
//! Run it with `cargo run --release --example trading_loop`, or with
//! `REDBOLT_NODES` set.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, Config, Guard, Lease, LockError, now};

const TTL: Duration = Duration::from_secs(20);
const SIGNALS: usize = 500;
/// Time from one signal to the next.
const PACE: Duration = Duration::from_millis(2);
/// Buckets for the times of the passes; each is twice as long as the one before, from 1 ns.
const BUCKETS: usize = 40;

type Anything = Result<(), Box<dyn std::error::Error>>;

/// How often each signal was traded, by either desk.
type Trades = [AtomicU32; SIGNALS];

fn main() -> Anything {
    let found = common::nodes()?;
    // Each run has its own signals, because nodes may still have the locks of the last run.
    let run = std::process::id();
    let config = || Config::new(&found.urls);
    let mut driver = Driver::standalone(config()?)?;
    let rival = Client::connect(config()?)?;
    let (trades, (feed, signals)) = ([const { AtomicU32::new(0) }; SIGNALS], channel());
    let (rival_feed, rival_signals) = channel();

    let (desk, theirs) = thread::scope(|scope| {
        let (trades, rival) = (&trades, &rival);
        scope.spawn(move || send_signals(&[feed, rival_feed]));
        let theirs = scope.spawn(move || trade_blocking(rival, run, &rival_signals, trades));
        let desk = trade_spinning(&mut driver, run, &signals, trades)?;
        let theirs = theirs.join().map_err(|_| "the rival failed")??;
        Ok::<_, Box<dyn std::error::Error>>((desk, theirs))
    })?;
    let (here, there) = (desk.leases.len(), theirs.len());
    println!("{SIGNALS} signals: {here} traded here, {there} by the rival");
    desk.tell();
    let slept = desk.slept;
    drop((desk, theirs));
    rival.shutdown(Duration::from_secs(1)).wait();
    driver.shutdown(Duration::from_secs(1));

    let twice = trades.iter().filter(|count| count.load(Ordering::Relaxed) > 1).count();
    let missed = trades.iter().filter(|count| count.load(Ordering::Relaxed) == 0).count();
    println!("{twice} traded twice, {missed} by nobody");
    if twice > 0 {
        return Err(format!("{twice} signals were traded twice").into());
    }
    // A loop that waited for its locks would sleep for each of them.
    if slept.is_some_and(|times| times > SIGNALS / 4) {
        return Err("the loop slept".into());
    }
    Ok(())
}

/// The results of the desk.
struct Desk {
    leases: Vec<Lease>,
    passes: [u64; BUCKETS],
    longest: Duration,
    /// How often the thread gave up its processor of its own accord.
    slept: Option<usize>,
}

/// Makes one pass after another, and never waits.
fn trade_spinning(
    driver: &mut Driver,
    run: u32,
    signals: &Receiver<usize>,
    trades: &Trades,
) -> Result<Desk, Box<dyn std::error::Error>> {
    let mut desk = Desk {
        leases: Vec::with_capacity(SIGNALS),
        passes: [0; BUCKETS],
        longest: Duration::ZERO,
        slept: None,
    };
    // The signal of each operation.
    let mut wanted = Vec::with_capacity(SIGNALS);
    let (mut is_open, before) = (true, sleeps());
    let mut begin = now();
    while is_open || driver.in_flight() > 0 {
        match signals.try_recv() {
            Ok(signal) => {
                let id = driver.try_lock(format!("signal:{run}:{signal}"), TTL)?;
                wanted.push((id, signal));
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => is_open = false,
        }
        // Reads what the sockets hold, and writes what waits to be sent. It never blocks.
        driver.drive();
        while let Some(done) = driver.completion() {
            let Some(place) = wanted.iter().position(|(id, _)| *id == done.id) else { continue };
            let (_, signal) = wanted.swap_remove(place);
            let Outcome::Lock(result) = done.result else { continue };
            match result {
                Ok(lease) => {
                    trade(lease.is_valid(), signal, trades);
                    desk.leases.push(lease);
                }
                // The rival has the lock, or too few nodes answered: no trade here.
                Err(LockError::Taken(_) | LockError::NoQuorum(_)) => {}
                Err(why) => return Err(why.into()),
            }
        }
        let end = now();
        let pass = begin.until(end);
        if let Some(count) = desk.passes.get_mut(bucket(pass)) {
            *count += 1;
        }
        desk.longest = desk.longest.max(pass);
        begin = end;
    }
    desk.slept = sleeps().zip(before).map(|(after, before)| after - before);
    Ok(desk)
}

/// Trades with blocking calls. It keeps the guards until both desks are done, because a desk could
/// trade a signal again if its lock were free.
fn trade_blocking(
    client: &Client,
    run: u32,
    signals: &Receiver<usize>,
    trades: &Trades,
) -> Result<Vec<Guard>, LockError> {
    let mut guards = Vec::new();
    while let Ok(signal) = signals.recv() {
        match client.try_lock(format!("signal:{run}:{signal}"), TTL).wait() {
            Ok(guard) => {
                trade(guard.is_valid(), signal, trades);
                guards.push(guard);
            }
            Err(LockError::Taken(_) | LockError::NoQuorum(_)) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(guards)
}

fn trade(is_valid: bool, signal: usize, trades: &Trades) {
    if is_valid && let Some(count) = trades.get(signal) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The market: every desk gets every signal.
fn send_signals(desks: &[Sender<usize>]) {
    for signal in 0..SIGNALS {
        thread::sleep(PACE);
        for desk in desks {
            let _ = desk.send(signal);
        }
    }
}

impl Desk {
    /// Prints how long the passes took.
    fn tell(&self) {
        let all: u64 = self.passes.iter().sum();
        println!("{all} passes; this share of them took less than:");
        for (name, share) in [("50 %", 0.5), ("99 %", 0.99), ("99.99 %", 0.9999)] {
            let mut below = 0;
            let index = self.passes.iter().position(|count| {
                below += count;
                below as f64 >= all as f64 * share
            });
            let nanos = 1_u64 << (index.unwrap_or(0) + 1);
            println!("{name:>8}  {:?}", Duration::from_nanos(nanos));
        }
        println!(" longest  {:?}", self.longest);
        match self.slept {
            Some(times) => println!("the loop's thread slept {times} times"),
            None => println!("this system does not tell how often a thread slept"),
        }
    }
}

/// The bucket of a time: the exponent of the highest power of two that is not above its
/// nanoseconds.
fn bucket(time: Duration) -> usize {
    (time.as_nanos().max(1).ilog2() as usize).min(BUCKETS - 1)
}

/// How often this thread has gone to sleep so far; Linux counts it.
fn sleeps() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}
