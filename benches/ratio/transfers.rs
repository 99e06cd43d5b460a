//! Locks that are handed over, beside locks that are released and waited for, by the delay that is
//! added to each round trip. Each contender is a client of its own, holds the lock for 0.1 ms, and
//! wants it again at once.

use std::time::Duration;

use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, Config, IdleStrategy, Lease, Retry, now};

use crate::bare_transfers::BareTransfers;
use crate::handover::{Contender, NODES, Redbolt, commands, contend};
use crate::nodes::{Setup, config};
use crate::plot::{Line, Plot, Scale, save};
use crate::slices::percentile;
use crate::{Anything, Options, TTL};
use redbolt_benches::proxy::delayed;

/// A loop of its own around a [`Driver`]: no other thread has to wake up.
struct Looping {
    poll: Poll,
    events: Events,
    driver: Driver,
    lease: Option<Lease>,
}

/// The kind of a contender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sockets that hand the key round by the same script.
    Bare,
    /// A [`Client`] of its own.
    Client,
    /// A [`Client`] of its own that drops its guards.
    Dropping,
    Driver,
}

/// Round trips that are added to those of loopback, in milliseconds.
const ADDED: [u64; 4] = [0, 1, 3, 10];

/// The least length of a slice, as a time and in added round trips. It is so long that what clients
/// send before their first turn counts for little.
const TIME: Duration = Duration::from_secs(1);
const TRIPS: u32 = 200;

/// How often the ways take turns.
const SLICES: usize = 2;

/// The number of clients whose line is in the plot.
const PLOTTED: usize = 8;

pub(crate) fn run(options: &Options) -> Anything {
    let Some(setup) = &Setup::new(NODES)?.filter(Setup::is_tcp) else {
        println!("needs {NODES} nodes over TCP");
        return Ok(());
    };
    let mut lines: Vec<Line> = Vec::new();
    println!(
        "| added round trip | clients | held | way | hand-over p50 | in round trips | of bare sockets | p99 | turns per second | \
         least of mean | commands per turn |"
    );
    println!("|{}", "---|".repeat(11));
    for added in ADDED {
        let brief = Duration::from_micros(100);
        let time = TIME.max(Duration::from_millis(added) * TRIPS);
        // Long enough that the client which has let go is back.
        let long = Duration::from_millis(added) * 5 / 2;
        for (clients, hold) in [(2, brief), (2, long), (8, brief), (64, brief)] {
            if hold.is_zero() {
                continue;
            }
            let (_proxies, far) = delayed(&setup.addresses, [Duration::from_millis(added); NODES])?;
            let addresses = if added > 0 { &far } else { &setup.addresses };
            let mut ways = ways(clients);
            for _ in 0..SLICES {
                for way in &mut ways {
                    way.slice(setup, addresses, (clients, time), hold)?;
                }
            }
            let [.., bare] = &ways;
            for way in &ways {
                way.print(added, clients, hold, bare.p50());
                if clients == PLOTTED && added > 0 {
                    let point = (added as f64, way.p50() / (added as f64 * 1e3));
                    match lines.iter_mut().find(|line| line.name == way.name) {
                        Some(line) => line.points.push(point),
                        None => {
                            lines.push(Line { name: way.name.to_owned(), points: vec![point] });
                        }
                    }
                }
            }
        }
    }
    if let Some(dir) = &options.plots {
        let plot = Plot {
            title: "From unlock to the next holder, eight clients, five nodes (p50)",
            x: "added round trip, milliseconds",
            y: "round trips",
            x_scale: Scale::Log,
            y_scale: Scale::Zero,
            lines,
        };
        save(&dir.join("handover.svg"), "", &[plot])?;
    }
    Ok(())
}

fn ways(clients: usize) -> [Way; 5] {
    [
        ("woken", 0_u8, Kind::Client),
        ("handed over", 16, Kind::Client),
        ("guards dropped", 16, Kind::Dropping),
        ("Driver", 16, Kind::Driver),
        ("bare sockets", 16, Kind::Bare),
    ]
    .map(|(name, in_row, kind)| Way {
        name,
        in_row,
        kind,
        times: Vec::new(),
        served: vec![0; clients],
        turns: 0,
        commands: 0,
        time: Duration::ZERO,
    })
}

/// One way of handing over, and its results.
struct Way {
    name: &'static str,
    in_row: u8,
    kind: Kind,
    times: Vec<u64>,
    served: Vec<u64>,
    turns: u64,
    commands: u64,
    time: Duration,
}

impl Way {
    fn slice(
        &mut self,
        setup: &Setup,
        addresses: &[String],
        (clients, time): (usize, Duration),
        hold: Duration,
    ) -> Anything {
        let retry = Retry::every(Duration::from_millis(200), Duration::from_millis(200));
        let config = config(addresses, IdleStrategy::Park)?
            .node_timeout(Duration::from_millis(500))
            .transfers_in_row(self.in_row)
            .retry(retry);
        let connect = |me| -> Anything<Box<dyn Contender>> {
            Ok(match self.kind {
                Kind::Bare => {
                    let wait = IdleStrategy::Park;
                    Box::new(BareTransfers::connect(addresses, wait, me, clients)?)
                }
                Kind::Client | Kind::Dropping => {
                    let client = Client::connect(config.clone())?;
                    let drops = self.kind == Kind::Dropping;
                    Box::new(Redbolt { client, guard: None, drops })
                }
                Kind::Driver => Box::new(Looping::connect(config.clone())?),
            })
        };
        let mut contenders = (0..clients).map(connect).collect::<Anything<Vec<_>>>()?;
        let before = commands(setup)?;
        let seen = contend(&mut contenders, time, hold)?;
        self.time += time;
        self.commands += commands(setup)? - before;
        self.turns += seen.turns;
        self.times.extend(&seen.times);
        self.served.iter_mut().zip(&seen.served).for_each(|(sum, served)| *sum += served);
        Ok(())
    }

    fn p50(&self) -> f64 {
        percentile(&self.times, 0.5)
    }

    fn print(&self, added: u64, clients: usize, hold: Duration, bare: f64) {
        let p50 = self.p50();
        let mean = self.served.iter().sum::<u64>() as f64 / clients as f64;
        let least = self.served.iter().copied().min().unwrap_or(0) as f64 / mean;
        let trips =
            if added > 0 { format!("{:.2}", p50 / (added as f64 * 1e3)) } else { "-".to_owned() };
        println!(
            "| {added} ms | {clients} | {hold:?} | {} | {p50:.0} us | {trips} | {:.3} | {:.0} us | {:.0} | {least:.2} | {:.1} |",
            self.name,
            p50 / bare,
            percentile(&self.times, 0.99),
            self.turns as f64 / self.time.as_secs_f64(),
            self.commands as f64 / self.turns as f64,
        );
    }
}

impl Looping {
    fn connect(config: Config) -> Anything<Self> {
        let (poll, events) = (Poll::new()?, Events::with_capacity(64));
        let driver = Driver::new(config, poll.registry(), 0..64)?;
        let mut looping = Self { poll, events, driver, lease: None };
        while !looping.driver.is_settled() {
            looping.sleep()?;
        }
        Ok(looping)
    }

    fn sleep(&mut self) -> Anything {
        self.pass(self.driver.timeout())
    }

    fn pass(&mut self, timeout: Option<Duration>) -> Anything {
        self.poll.poll(&mut self.events, timeout)?;
        for event in &self.events {
            self.driver.ready(event);
        }
        self.driver.drive();
        Ok(())
    }

    fn submitted(&mut self) -> Anything<Outcome> {
        self.driver.flush();
        loop {
            if let Some(done) = self.driver.completion() {
                return Ok(done.result);
            }
            self.sleep()?;
        }
    }
}

impl Contender for Looping {
    fn lock(&mut self) -> Anything {
        self.driver.lock("contended", TTL)?;
        let Outcome::Lock(lease) = self.submitted()? else { return Err("no lock".into()) };
        self.lease = Some(lease?);
        Ok(())
    }

    fn unlock(&mut self) -> Anything {
        self.driver.unlock(self.lease.take().ok_or("not held")?)?;
        self.submitted()?;
        Ok(())
    }

    fn hold(&mut self, time: Duration) -> Anything {
        let begin = now();
        while begin.until(now()) < time {
            self.pass(Some(Duration::ZERO))?;
        }
        Ok(())
    }
}
