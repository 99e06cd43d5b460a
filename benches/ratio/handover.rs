//! How fast a held lock goes from one client to the next: each client is a thread with its own
//! connections, and all want the same key again at once.
//!
//! Beside it: the acquisition of a lone client, before and after on the same nodes, and the time
//! that bare sockets take to pass a key round. With "one hung", a proxy stands before the last node
//! and lets nothing through once all clients have connected.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Guard, IdleStrategy, Retry, now};

use crate::bare::Bare;
use crate::nodes::{Setup, config};
use crate::slices::percentile;
use crate::{Anything, Options, TTL};
use redbolt_benches::proxy::{Mode, Proxy};

/// How long each row is measured; bare sockets run for half as long.
const TIME: Duration = Duration::from_secs(4);

pub(crate) const NODES: usize = 5;

/// Acquisitions of a lone client, before and after each row.
const ALONE: usize = 3_000;

const WAITS: [(&str, IdleStrategy); 2] = [
    ("park", IdleStrategy::Park),
    ("spin 50 us, then park", IdleStrategy::SpinThenPark(Duration::from_micros(50))),
];

/// A client that takes turns with the lock.
pub(crate) trait Contender: Send {
    fn lock(&mut self) -> Anything;
    fn unlock(&mut self) -> Anything;

    /// Works for this long with the lock.
    fn hold(&mut self, time: Duration) -> Anything {
        let begin = now();
        while begin.until(now()) < time {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

pub(crate) struct Redbolt {
    pub(crate) client: Client,
    pub(crate) guard: Option<Guard>,
    /// The client lets go by dropping the guard, and does not wait for the end of the release.
    pub(crate) drops: bool,
}

/// The state that the contenders share.
#[derive(Default)]
struct Turns {
    is_over: AtomicBool,
    /// When the last holder let go, in nanoseconds; the next field is that holder, counted from
    /// one.
    released_at: AtomicU64,
    holder: AtomicUsize,
    is_held: AtomicBool,
}

/// The results of the contenders.
pub(crate) struct Seen {
    /// The nanoseconds of each change of hands.
    pub(crate) times: Vec<u64>,
    /// How many turns each contender had, also those that it took again before the others knew.
    pub(crate) served: Vec<u64>,
    /// All turns, also those of a contender that took the lock again before any other asked for it.
    pub(crate) turns: u64,
}

impl Seen {
    pub(crate) fn p50(&self) -> f64 {
        percentile(&self.times, 0.5)
    }
}

pub(crate) fn run(_: &Options) -> Anything {
    let Some(setup) = Setup::new(NODES)?.filter(Setup::is_tcp) else {
        println!("needs {NODES} nodes over TCP");
        return Ok(());
    };
    for (name, wait) in WAITS {
        println!(
            "| wait | clients | held | nodes | acquire alone | hand-over p50 | of acquire | of bare sockets | \
             p99 | changes per second | least of mean | commands per turn |"
        );
        println!("|{}", "---|".repeat(12));
        for is_hung in [false, true] {
            for (clients, hold) in [(2, 100), (8, 100), (8, 1_000), (64, 100)] {
                row(&setup, (name, wait), is_hung, clients, Duration::from_micros(hold))?;
            }
        }
        println!();
    }
    Ok(())
}

fn row(
    setup: &Setup,
    (name, wait): (&str, IdleStrategy),
    is_hung: bool,
    clients: usize,
    hold: Duration,
) -> Anything {
    let mut addresses = setup.addresses.clone();
    let last = addresses.pop().ok_or("no node")?;
    let proxy = is_hung.then(|| Proxy::start(&last)).transpose()?;
    addresses.push(proxy.as_ref().map_or(last, Proxy::address));

    let lone = Redbolt::connect(&addresses, wait)?;
    let contenders = (0..clients).map(|_| Redbolt::connect(&addresses, wait));
    let mut contenders = contenders.collect::<Anything<Vec<_>>>()?;
    if let Some(proxy) = &proxy {
        proxy.set(Mode::Hang);
    }
    let mut alone = lone.alone()?;
    let before = commands(setup)?;
    let seen = contend(&mut contenders, TIME, hold)?;
    let asked = commands(setup)? - before;
    alone.extend(lone.alone()?);
    let bare = if is_hung {
        None
    } else {
        let bare = (0..clients).map(|me| Bare::connect(&addresses, wait, me, clients));
        Some(contend(&mut bare.collect::<Anything<Vec<_>>>()?, TIME / 2, hold)?.p50())
    };

    let (alone, p50) = (percentile(&alone, 0.5), seen.p50());
    let mean = seen.served.iter().sum::<u64>() as f64 / clients as f64;
    let least = seen.served.iter().copied().min().unwrap_or(0) as f64 / mean;
    println!(
        "| {name} | {clients} | {hold:?} | {} | {alone:.1} us | {p50:.1} us | {:.2} | {} | {:.1} us | {:.0} | \
         {least:.2} | {:.1} |",
        if is_hung { "one hung" } else { "all" },
        p50 / alone,
        bare.map_or_else(|| "-".to_owned(), |bare| format!("{:.2}", p50 / bare)),
        percentile(&seen.times, 0.99),
        seen.times.len() as f64 / TIME.as_secs_f64(),
        asked as f64 / seen.turns as f64,
    );
    Ok(())
}

/// How many commands the script of a hand-over runs after its GET, if the key was the holder's:
/// DEL, SET and PUBLISH. No client sends a DEL by itself, so each DEL counts one such script.
const MORE_OF_A_SCRIPT: u64 = 3;

/// How many commands clients have sent to all nodes so far.
pub(crate) fn commands(setup: &Setup) -> Anything<u64> {
    let (mut run, mut by_scripts) = (0_u64, 0);
    for address in &setup.addresses {
        let mut node = TcpStream::connect(address)?;
        node.write_all(b"INFO commandstats\r\nQUIT\r\n")?;
        let mut said = String::new();
        node.read_to_string(&mut said)?;
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse::<u64>().ok()?))
        };
        for (name, calls) in said.lines().filter_map(calls) {
            run += calls;
            by_scripts += match name.as_str() {
                "eval" => calls,
                "del" => MORE_OF_A_SCRIPT * calls,
                _ => 0,
            };
        }
    }
    Ok(run.saturating_sub(by_scripts))
}

impl Redbolt {
    fn connect(addresses: &[String], wait: IdleStrategy) -> Anything<Self> {
        let retry = Retry::every(Duration::from_millis(200), Duration::from_millis(200));
        let client = Client::connect(config(addresses, wait)?.retry(retry))?;
        Ok(Self { client, guard: None, drops: false })
    }

    /// The nanoseconds of acquisitions for which no other client contends.
    fn alone(&self) -> Anything<Vec<u64>> {
        let mut times = Vec::new();
        for _ in 0..ALONE {
            let begin = now();
            let lease = self.client.try_lock("alone", TTL).wait()?;
            times.push(u64::try_from(begin.until(now()).as_nanos())?);
            lease.unlock().wait()?;
        }
        Ok(times)
    }
}

impl Contender for Redbolt {
    fn lock(&mut self) -> Anything {
        self.guard = Some(self.client.lock("contended", TTL).wait()?);
        Ok(())
    }

    fn unlock(&mut self) -> Anything {
        let guard = self.guard.take().ok_or("not held")?;
        if !self.drops {
            guard.unlock().wait()?;
        }
        Ok(())
    }
}

impl Contender for Box<dyn Contender> {
    fn lock(&mut self) -> Anything {
        self.as_mut().lock()
    }

    fn unlock(&mut self) -> Anything {
        self.as_mut().unlock()
    }

    fn hold(&mut self, time: Duration) -> Anything {
        self.as_mut().hold(time)
    }
}

/// All hand-overs among the contenders within `time`, without the commands that their ends write.
pub(crate) fn contend(
    contenders: &mut [impl Contender],
    time: Duration,
    hold: Duration,
) -> Anything<Seen> {
    let turns = Turns::default();
    let count = contenders.len();
    let each: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = contenders
            .iter_mut()
            .zip(1..)
            .map(|(contender, me)| {
                let turns = &turns;
                scope.spawn(move || take_turns(contender, me, turns, hold))
            })
            .collect();
        thread::sleep(time);
        turns.is_over.store(true, Ordering::Relaxed);
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    if each.len() < count {
        return Err("a contender failed".into());
    }
    let mut seen = Seen { times: Vec::new(), served: Vec::new(), turns: 0 };
    for (times, turns) in each {
        seen.served.push(turns);
        seen.times.extend(times);
        seen.turns += turns;
    }
    Ok(seen)
}

/// Takes turns until the time is over. Returns the time of each change of hands, and how many turns
/// there were; `None` if a call failed.
fn take_turns(
    contender: &mut impl Contender,
    me: usize,
    turns: &Turns,
    hold: Duration,
) -> Option<(Vec<u64>, u64)> {
    let (mut times, mut count) = (Vec::new(), 0);
    while !turns.is_over.load(Ordering::Relaxed) {
        contender.lock().ok()?;
        let begin = now();
        assert!(!turns.is_held.swap(true, Ordering::SeqCst), "two hold one lock");
        count += 1;
        let before = turns.holder.swap(me, Ordering::Relaxed);
        if before != 0 && before != me {
            let released_at = turns.released_at.load(Ordering::SeqCst);
            times.push(begin.as_nanos().saturating_sub(released_at));
        }
        contender.hold(hold).ok()?;
        turns.released_at.store(now().as_nanos(), Ordering::SeqCst);
        turns.is_held.store(false, Ordering::SeqCst);
        contender.unlock().ok()?;
    }
    Some((times, count))
}
