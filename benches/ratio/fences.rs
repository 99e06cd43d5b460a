//! The cost of a fence: locks with and without one, on the same client and keys. Also how often
//! clients whose clocks differ need a second round.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::iter::repeat_n;
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redbolt::{Client, Config, Guard, IdleStrategy, LockOptions, RestartGuard, Retry, now};

use crate::handover::{Contender, contend};
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
    let Some(setup) = Setup::new(5)?.filter(Setup::is_tcp) else { return Ok(()) };
    if std::env::var_os("REDBOLT_NODES").is_none() {
        println!("\nsecond rounds are not counted: they need servers (REDBOLT_NODES)");
        return Ok(());
    }
    println!(
        "\nFive nodes, one key, held for {HOLD:?}, the clients' clocks apart in two halves:\n"
    );
    println!("| clients | clocks apart | turns | second rounds | hand-over p50 | of unfenced |");
    println!("|---|---|---|---|---|---|");
    for clients in [2, 8] {
        let (_, _, unfenced) = turns(&setup.addresses, clients, LockOptions::new(TTL), None)?;
        for (apart, clock) in [("0", CLOCKS[0]), ("1 ms", CLOCKS[1])] {
            let options = LockOptions::new(TTL).fenced();
            let (count, raised, p50) = turns(&setup.addresses, clients, options, Some(clock))?;
            println!(
                "| {clients} | {apart} | {count} | {:.1} % | {p50:.1} us | {:.2} |",
                100.0 * raised as f64 / count as f64,
                p50 / unfenced
            );
        }
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

fn system_clock() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a wall clock is what is wanted")]
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.unwrap_or_default()
}

fn fast_clock() -> Duration {
    system_clock() + Duration::from_millis(1)
}

/// The clocks of the clients, by turns.
const CLOCKS: [fn() -> Duration; 2] = [system_clock, fast_clock];

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

/// The turns that clients took, how many of them needed a second round, and the p50 of the
/// hand-overs.
fn turns(
    addresses: &[String],
    clients: usize,
    options: LockOptions,
    clock: Option<fn() -> Duration>,
) -> Anything<(u64, usize, f64)> {
    let retry = Retry::every(Duration::from_millis(200), Duration::from_millis(200));
    let contender = |me: usize| {
        let mut config = fit(addresses, IdleStrategy::Park)?.retry(retry);
        if let Some(clock) = clock.filter(|_| me % 2 == 1) {
            config = config.wall_clock(clock);
        }
        Ok(Turn { client: client(config)?, options: options.clone(), guard: None })
    };
    let mut contenders = (0..clients).map(contender).collect::<Anything<Vec<_>>>()?;
    let monitors = addresses.iter().map(|node| Monitor::start(node));
    let monitors = monitors.collect::<Anything<Vec<_>>>()?;
    let seen = contend(&mut contenders, TIME, HOLD)?;
    let mut raised = HashSet::new();
    for monitor in monitors {
        raised.extend(monitor.end()?);
    }
    Ok((seen.turns, raised.len(), seen.p50()))
}

/// Listens to all commands that a node runs, for the tokens of second rounds.
struct Monitor {
    node: String,
    thread: JoinHandle<std::io::Result<HashSet<String>>>,
}

/// The begin of the script for the second round.
const RAISE: &str = "if redis.call('get',KEYS[1])~=ARGV[1]";
const END: &str = "that is all";

impl Monitor {
    fn start(node: &str) -> Anything<Self> {
        let mut stream = TcpStream::connect(node)?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream).lines();
        // The monitor listens once the node has answered.
        lines.next().ok_or("the node hung up")??;
        let thread = thread::spawn(move || {
            let mut raised = HashSet::new();
            for line in lines {
                let line = line?;
                if line.contains(END) {
                    break;
                }
                let mut words = line.split('"').skip(1).step_by(2);
                if words.next() == Some("EVAL")
                    && words.next().is_some_and(|script| script.starts_with(RAISE))
                {
                    // The token comes behind the number of keys and two keys.
                    raised.extend(words.nth(3).map(str::to_owned));
                }
            }
            Ok(raised)
        });
        Ok(Self { node: node.to_owned(), thread })
    }

    fn end(self) -> Anything<HashSet<String>> {
        let mut stream = TcpStream::connect(&self.node)?;
        stream.write_all(format!("ECHO \"{END}\"\r\n").as_bytes())?;
        BufReader::new(stream).lines().next().ok_or("the node hung up")??;
        Ok(self.thread.join().map_err(|_| "a monitor ended")??)
    }
}
