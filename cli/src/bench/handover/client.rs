//! A client of the bench: a process of its own, which takes turns with the lock until its stdin ends
//! or its time is over.
//!
//! It says nothing while it takes turns: a pipe that somebody reads would take time from the others.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufWriter, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use clap::Parser as _;
use redbolt::{Client, Instant, Lease, Retry, now};

use super::said::{Said, Turn};
use crate::args::{BenchArgs, Cli, Command};
use crate::bench::keys::{Keys, TTL};
use crate::bench::limit::Limit;
use crate::bench::setup::{hold, idle_strategy};
use crate::exit::{Failure, USAGE};
use crate::output::{note, say, tell};
use crate::times::{histogram, record};
use crate::way::Way;
use crate::{settings, signals, sources};

/// The first argument of such a process.
pub(crate) const HIDDEN: &str = "--bench-client";

/// The word for the client that measures the round trip, and tells of nodes.
pub(super) const FIRST: &str = "first";

/// The longest wait for one turn. It does not end with the bench: a lock is not handed over to a call
/// that has little time left.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The round trip is measured with so many locks that nobody contends, for this time at most.
const ALONE: u32 = 400;
const ALONE_TIME: Duration = Duration::from_secs(1);

/// A shorter rest of a turn is not slept but waited out: a sleep ends late.
const SPIN: Duration = Duration::from_millis(1);

/// Is a client, and returns an exit code. `words` follow [`HIDDEN`].
pub(crate) fn become_client(words: impl Iterator<Item = OsString>) -> u8 {
    match run(words) {
        Ok(()) => 0,
        Err(failure) => {
            failure.report(true);
            failure.code
        }
    }
}

fn run(mut words: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let (key, role) = (words.next(), words.next());
    let cli = Cli::try_parse_from(std::iter::once("redbolt".into()).chain(words));
    let (Some(key), Some(role), Ok(Cli { mut global, command: Command::Bench(args) })) =
        (key, role, cli)
    else {
        note(format_args!("{HIDDEN} is for redbolt bench alone"));
        return Err(Failure::code(USAGE));
    };
    sources::fill(&mut global)?;
    signals::unblock()?;
    let orders = Orders::read()?;
    let retry = Retry::default().timeout(WAIT_MAX);
    let config = settings::config(&global)?.idle_strategy(idle_strategy(args.poll)).retry(retry);
    let mut contender = Contender {
        client: Client::connect(config)?,
        key: key.into_encoded_bytes(),
        hold: hold(&args)?,
        is_first: role == FIRST,
        turns: Vec::with_capacity(TURNS),
        failures: 0,
        why: None,
    };
    let round_trip = if contender.is_first { contender.round_trip(&args, &orders)? } else { None };
    say(Said::Ready(round_trip))?;
    if let Ok(go) = orders.inbox.recv() {
        contender.take_turns(go, &orders);
        contender.tell()?;
    }
    Ok(())
}

/// Turns for which there is room from the beginning.
const TURNS: usize = 1 << 16;

/// What the starter wants.
struct Orders {
    inbox: Receiver<Go>,
    /// The stdin has ended.
    is_over: Arc<AtomicBool>,
}

/// How long to take turns, and how many.
pub(super) struct Go {
    pub(super) end: Instant,
    pub(super) turns: u64,
}

impl Go {
    pub(super) fn line(&self) -> String {
        format!("{} {}\n", self.end.as_nanos(), self.turns)
    }

    fn parse(line: &str) -> Option<Self> {
        let (end, turns) = line.split_once(' ')?;
        Some(Self { end: Instant::from_nanos(end.parse().ok()?), turns: turns.parse().ok()? })
    }
}

impl Orders {
    fn read() -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (sender, inbox) = channel();
        let flag = Arc::clone(&is_over);
        thread::Builder::new().name("orders".into()).spawn(move || {
            let lines = io::stdin().lock().lines().map_while(Result::ok);
            for go in lines.filter_map(|line| Go::parse(&line)) {
                // Nobody waits for an order any more.
                let _ = sender.send(go);
            }
            flag.store(true, Ordering::Relaxed);
        })?;
        Ok(Self { inbox, is_over })
    }

    fn are_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

struct Contender {
    client: Client,
    key: Vec<u8>,
    hold: Duration,
    is_first: bool,
    turns: Vec<Turn>,
    failures: u64,
    why: Option<String>,
}

impl Contender {
    /// The median time of a lock that nobody contends: one round trip to the quorum. `None` if there
    /// was no such lock.
    fn round_trip(
        &mut self,
        args: &BenchArgs,
        orders: &Orders,
    ) -> Result<Option<Duration>, Failure> {
        let mut times = histogram()?;
        let mut keys = Keys::new();
        let end = now() + ALONE_TIME.min(Limit::of(args)?.quarter().length());
        for _ in 0..ALONE {
            let asked = now();
            if orders.are_over() || asked >= end && !times.is_empty() {
                break;
            }
            let lease = self.client.try_lock(keys.next(), TTL)?;
            record(&mut times, now().saturating_since(asked));
            self.client.unlock(lease)?;
        }
        let median = Duration::from_nanos(times.value_at_quantile(0.5));
        Ok((!times.is_empty()).then_some(median))
    }

    fn take_turns(&mut self, go: Go, orders: &Orders) {
        let is_over = |turns: u64| turns >= go.turns || orders.are_over() || now() >= go.end;
        while !is_over(self.turns.len() as u64) {
            let before = self.client.driver().lease_counts();
            match self.client.lock(&self.key, TTL) {
                Ok(lease) => {
                    let got = now();
                    if is_over(0) {
                        // This turn is nobody's, and its key ends with its TTL at the latest.
                        let _ = self.client.unlock(lease);
                        break;
                    }
                    let by = Way::between(before, self.client.driver().lease_counts());
                    self.turn(lease, got, by);
                }
                // Its time is up.
                Err(_) if is_over(0) => break,
                Err(error) => self.fail(error.into()),
            }
            if self.is_first {
                tell(|| self.client.notice());
            }
        }
    }

    fn turn(&mut self, lease: Lease, got: Instant, by: Way) {
        rest_until(got + self.hold);
        // A client that was stopped meanwhile has had the lock until its deadline only.
        let released = now().min(lease.deadline());
        match self.client.unlock(lease) {
            Ok(_) => self.turns.push(Turn { got, released, by }),
            Err(error) => self.fail(error.into()),
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failures += 1;
        self.why = Some(failure.message);
    }

    /// Says what happened, once no lock of this client is left.
    fn tell(self) -> io::Result<()> {
        let Self { client, turns, failures, why, .. } = self;
        drop(client);
        let mut out = BufWriter::new(io::stdout().lock());
        for turn in turns {
            writeln!(out, "{}", Said::Turn(turn))?;
        }
        if let Some(why) = why {
            writeln!(out, "{}", Said::Failed(failures, why))?;
        }
        writeln!(out, "{}", Said::Done)?;
        out.flush()
    }
}

fn rest_until(end: Instant) {
    thread::sleep(now().until(end).saturating_sub(SPIN));
    while now() < end {
        std::hint::spin_loop();
    }
}
