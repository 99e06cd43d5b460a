//! The five scenarios, each a short slice for one client.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, LockError, now};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Anything;
use crate::program::Program;
use redbolt_benches::proxy::{Mode, Proxy};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How long any answer may take beyond the time that was asked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The limit for an acquisition beside a hung node.
pub(crate) const HUNG_LIMIT: Duration = Duration::from_secs(2);
/// How much longer the slow node's round trip takes.
const SLOW: Duration = Duration::from_millis(20);
/// How many hand-overs of a row each round has, if its time allows.
const TURNS: usize = 350;
/// The time for the hand-overs of a row alone, and for those of rows side by side.
const TURNS_TIME: Duration = Duration::from_secs(10);
const SIDE_BY_SIDE_TIME: Duration = Duration::from_secs(80);
/// A row is measured beside others if its waiters sleep for at least this long, and so hardly
/// compute.
const SLEEPER: Duration = ms(20);
/// When a call that waits has surely made its first attempt, and sleeps or awaits word.
const WAITS: Duration = ms(5);
/// The node that hangs, or is slow.
pub(crate) const FAULTY: usize = 2;

/// The result of one slice of latencies: microseconds, and how often a lock was not won or not
/// held.
#[derive(Default)]
pub(crate) struct Slice {
    pub(crate) us: Vec<f64>,
    pub(crate) failed: u64,
}

impl Slice {
    fn read(answer: &Value) -> Self {
        let us = answer.get("us").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let failed = answer.get("failed").and_then(Value::as_u64).unwrap_or(0);
        Self { us: us.iter().filter_map(Value::as_f64).collect(), failed }
    }
}

/// A client with one kind of settings: its programs, and their results.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) versions: String,
    pub(crate) settings: String,
    /// The longest time between two looks of its waiter; zero if it is woken.
    retry: Duration,
    first: Program,
    second: Program,
    slow_program: Program,
    pub(crate) latency: Vec<Slice>,
    pub(crate) cycles: Vec<f64>,
    pub(crate) cycles_failed: u64,
    pub(crate) handover: Vec<f64>,
    pub(crate) hung: Vec<Slice>,
    pub(crate) slow: Vec<Slice>,
}

fn text(answer: &Value, name: &str) -> String {
    answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn nanoseconds(answer: &Value, name: &str) -> Anything<f64> {
    answer.get(name).and_then(Value::as_f64).ok_or_else(|| format!("no `{name}`").into())
}

impl Row {
    /// Takes programs that were just started.
    pub(crate) fn new(
        name: &'static str,
        setting: &'static str,
        [mut first, mut second, mut slow]: [Program; 3],
    ) -> Anything<Self> {
        let mut hello = Value::Null;
        for program in [&mut first, &mut second, &mut slow] {
            hello = program.answer(PATIENCE)?.ok_or("it does not start")?;
        }
        Ok(Self {
            name,
            setting,
            versions: text(&hello, "versions"),
            settings: text(&hello, "settings"),
            retry: ms(hello.get("retry_ms").and_then(Value::as_u64).unwrap_or(0)),
            first,
            second,
            slow_program: slow,
            latency: Vec::new(),
            cycles: Vec::new(),
            cycles_failed: 0,
            handover: Vec::new(),
            hung: Vec::new(),
            slow: Vec::new(),
        })
    }

    /// A prefix of keys, new for every slice. All prefixes are equally long, because a server's
    /// time depends on the length of keys.
    fn prefix() -> String {
        static SLICES: AtomicU32 = AtomicU32::new(0);
        format!("slice:{:06}", SLICES.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the client's locks work: a held lock keeps Redbolt out, and a released lock does
    /// not. Redbolt uses the nodes on which the row locks.
    pub(crate) fn check(&mut self, redbolt: &Client) -> Anything {
        let key = Self::prefix();
        // Some clients put all keys below a prefix of their own.
        let on_nodes = match self.name {
            "pottery" => format!("redlock:{key}"),
            "rueidislock" | "valkeylock" => format!("{}:0:{key}", self.name),
            _ => key.clone(),
        };
        let won = self.first.ask(&format!("try {key} 10000"), PATIENCE)?;
        if won.get("won") != Some(&Value::Bool(true)) {
            return Err("it does not win a free lock".into());
        }
        match redbolt.try_lock(&on_nodes, ms(1_000)).wait() {
            Err(LockError::Taken(_)) => {}
            other => return Err(format!("its lock does not keep others out: {other:?}").into()),
        }
        self.first.ask(&format!("unlock {key}"), PATIENCE)?;
        let end = now() + ms(1_000);
        loop {
            match redbolt.try_lock(&on_nodes, ms(1_000)).wait() {
                Ok(_) => return Ok(()),
                // Some clients return before the last node has answered.
                Err(_) if now() < end => thread::sleep(ms(5)),
                Err(error) => return Err(format!("its release does not free: {error}").into()),
            }
        }
    }

    /// Whether it locks on the first server alone, so that no other's fault can touch it.
    pub(crate) fn is_on_one_server(&self) -> bool {
        matches!(self.name, "rueidislock" | "valkeylock")
    }

    /// Whether its waiters sleep for so long that others can be measured meanwhile.
    pub(crate) fn sleeps(&self) -> bool {
        self.retry >= SLEEPER
    }

    pub(crate) fn warm_up(&mut self) -> Anything {
        let prefix = Self::prefix();
        // A JVM is slow until it has compiled the code that it runs often.
        let time = if self.name == "redisson" { 2_000 } else { 500 };
        for program in [&mut self.first, &mut self.second, &mut self.slow_program] {
            program.ask(&format!("latency {time} {prefix}"), PATIENCE)?;
        }
        self.first.ask(&format!("cycles {time} 64 {prefix}"), PATIENCE)?;
        Ok(())
    }

    pub(crate) fn measure_latency(&mut self, time_ms: u64) -> Anything {
        let slice = self.acquisitions(time_ms, "")?;
        self.latency.push(slice);
        Ok(())
    }

    /// Acquisitions of one key, or of so many at once.
    pub(crate) fn acquisitions(&mut self, time_ms: u64, keys: &str) -> Anything<Slice> {
        let prefix = Self::prefix();
        let line = format!("latency {time_ms} {prefix} {keys}");
        Ok(Slice::read(&self.first.ask(line.trim_end(), PATIENCE)?))
    }

    pub(crate) fn measure_cycles(&mut self, time_ms: u64) -> Anything {
        let prefix = Self::prefix();
        let answer = self.first.ask(&format!("cycles {time_ms} 64 {prefix}"), PATIENCE)?;
        self.cycles.push(nanoseconds(&answer, "cycles")? / nanoseconds(&answer, "seconds")?);
        self.cycles_failed += answer.get("failed").and_then(Value::as_u64).unwrap_or(0);
        Ok(())
    }

    /// One process holds the lock and the other waits. Measures from the call of the release to the
    /// return of the waiter's call. The processes take turns.
    ///
    /// How long one holds is drawn from the whole of the longest time between two looks. A waiter
    /// that polls looks at a random point of that time then, as it would behind any holder; a
    /// shorter or a fixed time would meet the same part of its rhythm in each turn.
    pub(crate) fn measure_handover(&mut self) -> Anything {
        let key = Self::prefix();
        let lock = format!("lock {key} 10000");
        let unlock = format!("unlock {key}");
        let holding = WAITS..WAITS + self.retry.max(WAITS);
        let time = if self.sleeps() { SIDE_BY_SIDE_TIME } else { TURNS_TIME };
        let (mut holder, mut waiter) = (&mut self.first, &mut self.second);
        let (mut random, end) = (random(), now() + time);
        holder.ask(&lock, PATIENCE)?;
        for turn in 0..TURNS {
            // Every client gets a few hand-overs, however slow it is.
            if turn >= 4 && now() >= end {
                break;
            }
            waiter.say(&lock)?;
            thread::sleep(random(&holding));
            let released = holder.ask(&unlock, PATIENCE)?;
            let won = waiter.answer(PATIENCE)?.ok_or("the waiter never wins")?;
            let us = (nanoseconds(&won, "to")? - nanoseconds(&released, "from")?) / 1e3;
            self.handover.push(us);
            (holder, waiter) = (waiter, holder);
        }
        holder.ask(&unlock, PATIENCE)?;
        Ok(())
    }

    /// Acquisitions while one server is stopped. An acquisition that lasts longer than the limit
    /// ends when the server goes on, and counts as endless.
    pub(crate) fn measure_hung(&mut self, server: Pid) -> Anything {
        if self.is_on_one_server() {
            return Ok(());
        }
        let prefix = Self::prefix();
        let stopped = Stopped::new(server)?;
        self.second.say(&format!("latency 400 {prefix}"))?;
        let answer = self.second.answer(HUNG_LIMIT)?;
        drop(stopped);
        let slice = if let Some(answer) = answer {
            Slice::read(&answer)
        } else {
            self.second.answer(PATIENCE)?.ok_or("it never recovers from a hung node")?;
            Slice { us: vec![f64::INFINITY], failed: 0 }
        };
        self.hung.push(slice);
        // The client and the server work off what is left over.
        self.second.ask(&format!("latency 100 {prefix}:after"), PATIENCE)?;
        Ok(())
    }

    pub(crate) fn measure_slow(&mut self, proxy: &Proxy) -> Anything {
        if self.is_on_one_server() {
            return Ok(());
        }
        let prefix = Self::prefix();
        proxy.set(Mode::Delay(SLOW));
        let answer = self.slow_program.ask(&format!("latency 500 {prefix}"), PATIENCE);
        proxy.set(Mode::Pass);
        self.slow.push(Slice::read(&answer?));
        Ok(())
    }
}

/// A stopped server, which goes on when this value is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(server: Pid) -> Anything<Self> {
        kill_process(server, Signal::STOP)?;
        Ok(Self(server))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Times out of a range; they need not be good (splitmix64).
fn random() -> impl FnMut(&Range<Duration>) -> Duration {
    let mut state = now().as_nanos();
    move |range| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let share = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        range.start + (range.end - range.start).mul_f64(share)
    }
}
