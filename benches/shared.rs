//! The shared handle against the blocking client: what a call costs on top, and how fast one key
//! goes round among eight threads of a process and among eight processes.
//!
//! Run it with `cargo bench -p redbolt-benches --bench shared`, or with `REDBOLT_NODES` set; else
//! it starts five nodes in a process of their own. `-- calls N` makes N uncontended calls
//! and nothing else, to count system calls and allocations with.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, IdleStrategy, Retry, Shared, now};
use redbolt_embedded::Nodes;

type Anything = Result<(), Box<dyn std::error::Error>>;

const TTL: Duration = Duration::from_secs(10);
/// Slices of each kind, in turns, so that the machine's moods meet all of them.
const SLICES: usize = 20;
const CALLS: usize = 300;
const CONTENDERS: usize = 8;
const CONTENDED: Duration = Duration::from_secs(3);

fn main() -> Anything {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["nodes"] => serve(),
        ["calls", count] => calls(count.parse()?),
        ["contend"] => contend(),
        _ => {
            let (_nodes, urls) = nodes()?;
            latency(&urls)?;
            turns(&urls)
        }
    }
}

/// Five nodes, until standard input ends.
fn serve() -> Anything {
    let nodes = Nodes::start(5)?;
    println!("{}", nodes.urls().join(","));
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn nodes() -> Result<(Option<Served>, String), Box<dyn std::error::Error>> {
    if let Ok(urls) = std::env::var("REDBOLT_NODES") {
        return Ok((None, urls));
    }
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg("nodes").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let served = Served(child);
    let mut urls = String::new();
    BufReader::new(output).read_line(&mut urls)?;
    Ok((Some(served), urls.trim().to_owned()))
}

fn config(urls: &str) -> Result<Config, Box<dyn std::error::Error>> {
    let retry = Retry::every(Duration::from_millis(1), Duration::from_millis(4));
    Ok(Config::new(urls.split(','))?.retry(retry))
}

fn calls(count: usize) -> Anything {
    let (_nodes, urls) = nodes()?;
    let shared = Shared::connect(config(&urls)?)?;
    for call in 0..count {
        shared.unlock(shared.try_lock(format!("calls:{call:08}"), TTL)?)?;
    }
    Ok(())
}

/// Times of one slice of acquisitions, in nanoseconds.
fn slice(times: &mut Vec<u64>, mut acquire: impl FnMut(&str) -> Anything) -> Anything {
    for call in 0..CALLS {
        let key = format!("uncontended:{call:08}");
        let begin = now();
        acquire(&key)?;
        times.push(now().as_nanos() - begin.as_nanos());
    }
    Ok(())
}

/// One life of a lock, from the call to the answer of its release.
fn latency(urls: &str) -> Anything {
    for wait in [IdleStrategy::Park, IdleStrategy::Spin] {
        let mut client = Client::connect(config(urls)?.idle_strategy(wait))?;
        let (mut alone, mut shared_times) = (Vec::new(), Vec::new());
        for _ in 0..SLICES {
            slice(&mut alone, |key| {
                let lease = client.try_lock(key, TTL)?;
                client.unlock(lease)?;
                Ok(())
            })?;
            // A handle of its own for each slice: one that spins takes a processor while it lives.
            let shared = Shared::connect(config(urls)?.idle_strategy(wait))?;
            slice(&mut shared_times, |key| {
                shared.unlock(shared.try_lock(key, TTL)?)?;
                Ok(())
            })?;
            shared.shutdown(Duration::from_secs(1));
        }
        for (name, times) in [("client", &mut alone), ("shared", &mut shared_times)] {
            times.sort_unstable();
            let at =
                |part: usize| times.get(times.len() * part / 100).copied().unwrap_or(0) / 1_000;
            println!("{wait:?} {name}: lock and unlock p50 {} us, p90 {} us", at(50), at(90));
        }
    }
    Ok(())
}

/// One of eight processes: takes turns, and prints how many it had.
fn contend() -> Anything {
    let urls = std::env::var("REDBOLT_NODES")?;
    let mut client = Client::connect(config(&urls)?)?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let (end, mut turns) = (now() + CONTENDED, 0_u64);
    while now() < end {
        let lease = client.lock("contended", TTL)?;
        turns += 1;
        client.unlock(lease)?;
    }
    println!("{turns}");
    Ok(())
}

fn turns(urls: &str) -> Anything {
    let shared = Shared::connect(config(urls)?)?;
    let (is_over, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut fewest = u64::MAX;
    thread::scope(|scope| {
        let contenders: Vec<_> = (0..CONTENDERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut turns = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        drop(shared.lock("contended", TTL).expect("its turn comes"));
                        turns += 1;
                    }
                    served.fetch_add(turns, Ordering::Relaxed);
                    turns
                })
            })
            .collect();
        thread::sleep(CONTENDED);
        is_over.store(true, Ordering::Relaxed);
        for contender in contenders {
            fewest = fewest.min(contender.join().expect("no panic"));
        }
    });
    let threads = served.into_inner() / CONTENDED.as_secs();
    let mean = threads * CONTENDED.as_secs() / 8;
    println!("{CONTENDERS} threads, one key: {threads} turns/s, least {fewest} of {mean}");
    drop(shared);

    let mut children = Vec::new();
    for _ in 0..CONTENDERS {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("contend").env("REDBOLT_NODES", urls);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        output.read_line(&mut String::new())?;
        children.push((child, output));
    }
    for (child, _) in &mut children {
        drop(child.stdin.take());
    }
    let mut turns = 0;
    for (mut child, mut output) in children {
        let mut line = String::new();
        output.read_line(&mut line)?;
        turns += line.trim().parse::<u64>()?;
        child.wait()?;
    }
    let processes = turns / CONTENDED.as_secs();
    let ratio = threads / processes.max(1);
    println!(
        "{CONTENDERS} processes, one key: {processes} turns/s; threads make {ratio} times that"
    );
    Ok(())
}
