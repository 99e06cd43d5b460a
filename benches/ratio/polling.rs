//! How soon a lock is held, by the way in which the loop looks for answers. All ways take turns,
//! beside the probe that spins.
//!
//! Each loop writes a lock with `flush` where it submits it, as a loop in a hurry does; one loop
//! leaves that to its next pass.

use std::time::Duration;

use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, Config, IdleStrategy, Lease, now};
use redbolt_benches::probe::{Commands, Probe};

use crate::nodes::{ALL_WAITS, Keys, Setup, config, probe};
use crate::slices::{CYCLES, median, nanos, percentile};
use crate::{Anything, Options, TTL};

const NODES: usize = 3;

/// How long nodes may take to connect or to answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &Options) -> Anything {
    let Some(setup) = Setup::new(NODES)? else {
        println!("needs {NODES} nodes");
        return Ok(());
    };
    let mut keys = Keys::new();
    let mut ways = ways(&setup.addresses)?;
    // The figures of the slices, for each way.
    let mut slices: Vec<Vec<[f64; 2]>> = vec![Vec::new(); ways.len()];
    for slice in 0..=options.slices {
        for turn in 0..ways.len() {
            let place = (slice + turn) % ways.len();
            let (Some((name, way)), Some(figures)) = (ways.get_mut(place), slices.get_mut(place))
            else {
                continue;
            };
            let times = (0..CYCLES).map(|_| way.cycle(&keys.next()));
            let times = times.collect::<Anything<Vec<u64>>>();
            let times = times.map_err(|why| format!("{name}: {why}"))?;
            // The first slice warms up.
            if slice > 0 {
                figures.push([percentile(&times, 0.5), percentile(&times, 0.99)]);
            }
        }
    }
    println!("| way | acquire p50 | p50 of the probe | acquire p99 | p99 of the probe |");
    println!("|---|---|---|---|---|");
    let Some(probe) = slices.first() else { return Ok(()) };
    for ((name, _), figures) in ways.iter().zip(&slices) {
        let [p50, p99] = [0, 1].map(|which| {
            let of = |figures: &[f64; 2]| figures.get(which).copied().unwrap_or(f64::NAN);
            let ratios = figures.iter().zip(probe).map(|(ours, probe)| of(ours) / of(probe));
            let (time, ratio) =
                (median(figures.iter().map(of).collect()), median(ratios.collect()));
            format!("{time:.1} us | {ratio:.2}")
        });
        println!("| {name} | {p50} | {p99} |");
    }
    Ok(())
}

/// A way to look for answers, and its name.
type Named = (&'static str, Box<dyn Way>);

trait Way {
    /// Takes and releases a lock. Returns the nanoseconds from the call to the lease.
    fn cycle(&mut self, key: &[u8]) -> Anything<u64>;
}

/// The ways, with the probe first.
fn ways(addresses: &[String]) -> Anything<Vec<Named>> {
    let spin = IdleStrategy::Spin;
    // An answer is late where other work keeps a server from its processor: it counts as long, and
    // fails nothing.
    let of = |wait| -> Anything<Config> { Ok(config(addresses, wait)?.node_timeout(PATIENCE)) };
    let standalone = || -> Anything<Driver> { Ok(Driver::standalone(of(spin)?)?) };
    let probe = Probing { probe: probe(addresses, spin)?, commands: Commands::new() };
    let mut ways: Vec<Named> = vec![("the probe, spinning", Box::new(probe))];

    let every = |driver: &mut Driver| -> Anything {
        driver.drive();
        Ok(())
    };
    ways.push(("`drive` in every pass", Looping::boxed(standalone()?, true, every)?));
    let name = "the same, written by the next pass instead of `flush`";
    ways.push((name, Looping::boxed(standalone()?, false, every)?));
    #[cfg(target_os = "linux")]
    {
        let driver = standalone()?;
        let pass = nested(&driver)?;
        let name = "`drive` where an epoll of the loop's own shows the driver's descriptor";
        ways.push((name, Looping::boxed(driver, true, pass)?));
    }

    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(64));
    let driver = Driver::new(of(spin)?, poll.registry(), 0..64)?;
    let pass = move |driver: &mut Driver| -> Anything {
        poll.poll(&mut events, Some(Duration::ZERO))?;
        for event in &events {
            driver.ready(event);
        }
        driver.drive();
        Ok(())
    };
    let name = "mio's `Poll` of the loop's own, `ready`, `drive` in every pass";
    ways.push((name, Looping::boxed(driver, true, pass)?));

    for (name, wait) in ALL_WAITS {
        let name = match name {
            "park" => "`Client`, `Park`",
            "spin" => "`Client`, `Spin`",
            _ => "`Client`, `SpinThenPark` of 50 us",
        };
        ways.push((name, Box::new(Client::connect(of(wait)?)?)));
    }
    Ok(ways)
}

/// A pass that drives where the driver's descriptor is readable or its time has come. It makes one
/// `epoll_wait` for that descriptor and a socket of the loop's own.
#[cfg(target_os = "linux")]
fn nested(driver: &Driver) -> Anything<impl FnMut(&mut Driver) -> Anything + use<>> {
    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, wait};
    use rustix::time::Timespec;

    const DRIVER: u64 = 1;
    let epoll = create(CreateFlags::CLOEXEC)?;
    add(&epoll, driver, EventData::new_u64(DRIVER), EventFlags::IN)?;
    let own = std::net::UdpSocket::bind("127.0.0.1:0")?;
    add(&epoll, &own, EventData::new_u64(0), EventFlags::IN)?;
    let mut events = Vec::with_capacity(16);
    Ok(move |driver: &mut Driver| -> Anything {
        let _own = &own;
        wait(&epoll, spare_capacity(&mut events), Some(&Timespec::default()))?;
        let is_readable = events.drain(..).any(|event| event.data.u64() == DRIVER);
        if is_readable || driver.timeout().is_some_and(|timeout| timeout.is_zero()) {
            driver.drive();
        }
        Ok(())
    })
}

struct Probing {
    probe: Probe,
    commands: Commands,
}

impl Way for Probing {
    fn cycle(&mut self, _: &[u8]) -> Anything<u64> {
        let command = self.commands.only_set();
        let begin = now();
        self.probe.round(command)?;
        let time = begin.until(now());
        self.probe.round(self.commands.only_release())?;
        Ok(nanos(time))
    }
}

impl Way for Client {
    fn cycle(&mut self, key: &[u8]) -> Anything<u64> {
        let begin = now();
        let guard = self.try_lock(key, TTL).wait()?;
        let time = begin.until(now());
        guard.unlock().wait()?;
        Ok(nanos(time))
    }
}

/// A driver in a loop that never sleeps.
struct Looping<P> {
    driver: Driver,
    /// Whether the loop writes each submitted lock at once.
    flushes: bool,
    pass: P,
}

impl<P: FnMut(&mut Driver) -> Anything + 'static> Looping<P> {
    fn boxed(driver: Driver, flushes: bool, pass: P) -> Anything<Box<dyn Way>> {
        let mut looping = Self { driver, flushes, pass };
        looping.driver.drive();
        let begin = now();
        while !looping.driver.is_settled() {
            if begin.until(now()) > PATIENCE {
                return Err("the nodes are not settled".into());
            }
            (looping.pass)(&mut looping.driver)?;
        }
        Ok(Box::new(looping))
    }

    fn submitted(&mut self) -> Anything<Outcome> {
        if self.flushes {
            self.driver.flush();
        }
        loop {
            (self.pass)(&mut self.driver)?;
            if let Some(done) = self.driver.completion() {
                return Ok(done.result);
            }
        }
    }
}

impl<P: FnMut(&mut Driver) -> Anything + 'static> Way for Looping<P> {
    fn cycle(&mut self, key: &[u8]) -> Anything<u64> {
        let begin = now();
        self.driver.try_lock(key, TTL)?;
        let Outcome::Lock(lease) = self.submitted()? else { return Err("no lock".into()) };
        let lease: Lease = lease?;
        let time = begin.until(now());
        self.driver.unlock(lease)?;
        self.submitted()?;
        Ok(nanos(time))
    }
}
