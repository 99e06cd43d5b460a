//! The five scenarios, each a short slice for one client.

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
    first: Program,
    second: Program,
    slow_program: Program,
    /// The client uses new names for its keys in every slice.
    slices: u32,
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
            first,
            second,
            slow_program: slow,
            slices: 0,
            latency: Vec::new(),
            cycles: Vec::new(),
            cycles_failed: 0,
            handover: Vec::new(),
            hung: Vec::new(),
            slow: Vec::new(),
        })
    }

    fn prefix(&mut self) -> String {
        self.slices += 1;
        format!("{}-{}:{}", self.name, self.setting, self.slices)
    }

    /// Whether the client's locks are locks: one that it holds keeps Redbolt out, and one that it
    /// released does not.
    pub(crate) fn check(&mut self, redbolt: &mut Client) -> Anything {
        let key = self.prefix();
        // pottery puts all keys below a prefix of its own.
        let on_nodes = if self.name == "pottery" { format!("redlock:{key}") } else { key.clone() };
        let won = self.first.ask(&format!("try {key} 10000"), PATIENCE)?;
        if won.get("won") != Some(&Value::Bool(true)) {
            return Err("it does not win a free lock".into());
        }
        match redbolt.try_lock(&on_nodes, ms(1_000)) {
            Err(LockError::Taken(_)) => {}
            other => return Err(format!("its lock does not keep others out: {other:?}").into()),
        }
        self.first.ask(&format!("unlock {key}"), PATIENCE)?;
        let end = now() + ms(1_000);
        loop {
            match redbolt.try_lock(&on_nodes, ms(1_000)) {
                Ok(_) => return Ok(()),
                // Some clients return before the last node has answered.
                Err(_) if now() < end => thread::sleep(ms(5)),
                Err(error) => return Err(format!("its release does not free: {error}").into()),
            }
        }
    }

    pub(crate) fn warm_up(&mut self) -> Anything {
        let prefix = self.prefix();
        // A JVM is slow until it has compiled the code that it runs often.
        let time = if self.name == "redisson" { 2_000 } else { 500 };
        for program in [&mut self.first, &mut self.second, &mut self.slow_program] {
            program.ask(&format!("latency {time} {prefix}"), PATIENCE)?;
        }
        self.first.ask(&format!("cycles {time} 64 {prefix}"), PATIENCE)?;
        Ok(())
    }

    pub(crate) fn measure_latency(&mut self) -> Anything {
        let prefix = self.prefix();
        let answer = self.first.ask(&format!("latency 400 {prefix}"), PATIENCE)?;
        self.latency.push(Slice::read(&answer));
        Ok(())
    }

    pub(crate) fn measure_cycles(&mut self) -> Anything {
        let prefix = self.prefix();
        let answer = self.first.ask(&format!("cycles 500 64 {prefix}"), PATIENCE)?;
        self.cycles.push(nanoseconds(&answer, "cycles")? / nanoseconds(&answer, "seconds")?);
        self.cycles_failed += answer.get("failed").and_then(Value::as_u64).unwrap_or(0);
        Ok(())
    }

    /// One process holds the lock, and the other waits. The time runs from the call of the holder's
    /// release to the return of the waiter's call. They take turns.
    pub(crate) fn measure_handover(&mut self, random: &mut impl FnMut() -> u64) -> Anything {
        let key = self.prefix();
        let lock = format!("lock {key} 10000");
        let unlock = format!("unlock {key}");
        self.first.ask(&lock, PATIENCE)?;
        for turn in 0..4 {
            let (holder, waiter) = if turn % 2 == 0 {
                (&mut self.first, &mut self.second)
            } else {
                (&mut self.second, &mut self.first)
            };
            waiter.say(&lock)?;
            // The random pause keeps clear of any client's rhythm of retries.
            thread::sleep(ms(20) + Duration::from_micros(random() % 60_000));
            let released = holder.ask(&unlock, PATIENCE)?;
            let won = waiter.answer(PATIENCE)?.ok_or("the waiter never wins")?;
            let us = (nanoseconds(&won, "to")? - nanoseconds(&released, "from")?) / 1e3;
            self.handover.push(us);
        }
        self.first.ask(&unlock, PATIENCE)?;
        Ok(())
    }

    /// Acquisitions while one server is stopped. An acquisition that lasts longer than the limit
    /// ends when the server goes on, and counts as endless.
    pub(crate) fn measure_hung(&mut self, server: Pid) -> Anything {
        let prefix = self.prefix();
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
        let prefix = self.prefix();
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
