//! The line protocol between the runner and the program of one client. See
//! `benches/peers/README.md`.
//!
//! A client in Rust implements [`Peer`] and calls [`serve`].

use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

/// When a call began and ended, in nanoseconds of the monotonic clock that all programs share.
#[derive(Clone, Copy)]
pub struct Span {
    pub from: u64,
    pub to: u64,
}

/// The result of a run with many workers.
pub struct Cycles {
    pub cycles: u64,
    pub failed: u64,
    pub seconds: f64,
}

pub type Result<T> = std::result::Result<T, String>;

/// One client of one set of nodes.
pub trait Peer {
    /// The versions of the measured client and its parts.
    fn versions(&self) -> String;
    /// How the client is set up.
    fn settings(&self) -> &'static str;
    /// The longest time between two looks of a call that waits, in milliseconds; `None` if it is
    /// woken.
    fn retry_ms(&self) -> Option<u64>;
    /// One attempt: whether it won.
    fn try_lock(&mut self, key: &str, ttl: Duration) -> Result<bool>;
    /// One attempt at the locks of all keys at once, held under the first of them.
    fn try_lock_all(&mut self, _keys: &[String], _ttl: Duration) -> Result<Span> {
        Err("the client has no locks of several keys".to_owned())
    }
    /// Waits for the lock as the client's users would.
    fn lock(&mut self, key: &str, ttl: Duration) -> Result<Span>;
    /// Releases the lock. Returns whether the client reports that it still held it.
    fn unlock(&mut self, key: &str) -> Result<(Span, bool)>;
    /// Extends the lock; `None` if the client cannot.
    fn extend(&mut self, key: &str, ttl: Duration) -> Result<Option<bool>>;
    /// Acquires and releases fresh keys, with this many workers at once.
    fn cycles(&mut self, time: Duration, workers: usize, prefix: &str) -> Result<Cycles>;
}

/// The nodes (`host:port`) and whether the settings are the tuned ones, from the command line.
pub fn arguments() -> (Vec<String>, bool) {
    let mut words = std::env::args().skip(1);
    let nodes = words.next().unwrap_or_default();
    let is_tuned = words.next().as_deref() == Some("tuned");
    (nodes.split(',').map(str::to_owned).collect(), is_tuned)
}

/// `name version` of packages in a `Cargo.lock`.
pub fn locked(lock: &str, names: &[&str]) -> String {
    let version = |name: &str| {
        let at = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?.1;
        Some(format!("{name} {}", at.split_once('"')?.0))
    };
    names.iter().filter_map(|name| version(name)).collect::<Vec<_>>().join(", ")
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Runs `call`, and returns when it began and ended.
pub fn timed<T>(call: impl FnOnce() -> T) -> (T, Span) {
    let from = now();
    let value = call();
    (value, Span { from, to: now() })
}

/// Answers the runner's lines until there are no more.
pub fn serve(peer: &mut impl Peer) {
    let mut out = std::io::stdout().lock();
    let mut say = |answer: Value| {
        // If no process reads the answer, the next read of a line ends the program.
        let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
    };
    say(json!({
        "versions": peer.versions(),
        "settings": peer.settings(),
        "retry_ms": peer.retry_ms(),
    }));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_whitespace().collect();
        say(answer(peer, &words).unwrap_or_else(|error| json!({ "error": error })));
    }
}

fn answer(peer: &mut impl Peer, words: &[&str]) -> Result<Value> {
    let ms = |word: &str| word.parse().map(Duration::from_millis).map_err(|_| "no time".to_owned());
    Ok(match *words {
        ["try", key, ttl] => json!({ "won": peer.try_lock(key, ms(ttl)?)? }),
        ["lock", key, ttl] => {
            let span = peer.lock(key, ms(ttl)?)?;
            json!({ "from": span.from, "to": span.to })
        }
        ["unlock", key] => {
            let (span, held) = peer.unlock(key)?;
            json!({ "from": span.from, "to": span.to, "held": held })
        }
        ["extend", key, ttl] => json!({ "held": peer.extend(key, ms(ttl)?)? }),
        ["hold", key, ttl, hold, time] => hold_for(peer, key, ms(ttl)?, ms(hold)?, ms(time)?)?,
        ["latency", time, prefix] => latency(peer, ms(time)?, prefix, 1),
        ["latency", time, prefix, keys] => {
            latency(peer, ms(time)?, prefix, keys.parse().map_err(|_| "no number")?)
        }
        ["cycles", time, workers, prefix] => {
            let workers = workers.parse().map_err(|_| "no number")?;
            let done = peer.cycles(ms(time)?, workers, prefix)?;
            json!({ "cycles": done.cycles, "failed": done.failed, "seconds": done.seconds })
        }
        _ => return Err("no such command".to_owned()),
    })
}

fn end_of(time: Duration) -> u64 {
    now() + u64::try_from(time.as_nanos()).unwrap_or(0)
}

/// Takes the lock again and again, and returns the times for which it held it.
fn hold_for(
    peer: &mut impl Peer,
    key: &str,
    ttl: Duration,
    hold: Duration,
    time: Duration,
) -> Result<Value> {
    let end = end_of(time);
    let mut held = Vec::new();
    while now() < end {
        let from = peer.lock(key, ttl)?.to;
        std::thread::sleep(hold);
        let to = now();
        peer.unlock(key)?;
        held.push([from, to]);
    }
    Ok(json!({ "held": held }))
}

/// Acquires and releases fresh keys: so many at once, and one after the other.
fn latency(peer: &mut impl Peer, time: Duration, prefix: &str, at_once: usize) -> Value {
    let end = end_of(time);
    let (mut us, mut failed, mut number) = (Vec::new(), 0, 0);
    while now() < end {
        let fresh = (number..number + at_once).map(|number| format!("{prefix}:{number:06}"));
        let keys: Vec<String> = fresh.collect();
        number += at_once;
        let Some(first) = keys.first() else { break };
        let locked =
            if at_once == 1 { peer.lock(first, TTL) } else { peer.try_lock_all(&keys, TTL) };
        match locked {
            Ok(span) => {
                us.push((span.to - span.from) as f64 / 1e3);
                failed += u32::from(!peer.unlock(first).is_ok_and(|(_, held)| held));
            }
            Err(_) => failed += 1,
        }
    }
    json!({ "us": us, "failed": failed })
}

/// The TTL of the measured locks.
pub const TTL: Duration = Duration::from_secs(10);

/// As many threads as workers; each runs `cycle` on fresh keys until the time is over.
pub fn threads<C>(
    time: Duration,
    workers: usize,
    prefix: &str,
    client: impl Fn() -> C + Sync,
    cycle: impl Fn(&mut C, &str) -> bool + Sync,
) -> Cycles {
    let begin = now();
    let end = end_of(time);
    let work = |worker: usize| {
        let (mut client, mut cycles, mut failed) = (client(), 0, 0);
        while now() < end {
            let key = format!("{prefix}:{worker}:{cycles:06}");
            if cycle(&mut client, &key) { cycles += 1 } else { failed += 1 }
        }
        (cycles, failed)
    };
    let done: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or((0, 1))).collect()
    });
    Cycles {
        cycles: done.iter().map(|(cycles, _)| cycles).sum(),
        failed: done.iter().map(|(_, failed)| failed).sum(),
        seconds: (now() - begin) as f64 / 1e9,
    }
}
