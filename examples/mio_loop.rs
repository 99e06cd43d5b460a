//! Locks inside a mio loop of your own, beside a timer and a listener.
//!
//! The loop serves `GET` on a port of its own: each connection gets a line with the number of locks
//! taken so far. The loop takes a lock at every tick of the timer, and never blocks.
//!
//! Run it with `cargo run --example mio_loop`, or with `REDBOLT_NODES` set.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use redbolt::driver::mio::net::TcpListener;
use redbolt::driver::mio::{Events, Interest, Poll, Token};
use redbolt::driver::{Driver, Outcome};
use redbolt::{Config, Instant, now};

const LISTENER: Token = Token(0);
/// The driver's tokens: one per node, and one more.
const DRIVER: std::ops::Range<usize> = 100..133;
const TICK: Duration = Duration::from_millis(20);
const TICKS: u32 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let found = common::nodes()?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);

    let mut listener = TcpListener::bind("127.0.0.1:0".parse()?)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let address = listener.local_addr()?;
    println!("listening on {address}");
    let visitor = std::thread::spawn(move || visit(address));

    let mut driver = Driver::new(Config::new(&found.urls)?, poll.registry(), DRIVER)?;
    driver.drive();
    let (mut ticks, mut locks, mut served) = (0, 0, 0);
    let mut next_tick = now() + TICK;
    while ticks < TICKS || driver.in_flight() > 0 || served == 0 {
        let wake = driver.next_deadline().map_or(next_tick, |deadline| deadline.min(next_tick));
        match poll.poll(&mut events, Some(sleep_until(wake))) {
            // A signal interrupted the call, for example one that stops and continues the process:
            // there are no events.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => result?,
        }
        for event in &events {
            if driver.ready(event) {
                continue;
            }
            // The events are edge-triggered, so the loop accepts until there is no connection left.
            while let Ok((mut stream, _)) = listener.accept() {
                writeln!(stream, "{locks} locks so far")?;
                served += 1;
            }
        }
        if next_tick <= now() && ticks < TICKS {
            ticks += 1;
            next_tick = next_tick + TICK;
            driver.lock(format!("tick:{ticks}"), Duration::from_secs(5))?;
        }
        driver.drive();
        while let Some(done) = driver.completion() {
            if let Outcome::Lock(result) = done.result {
                let lease = result?;
                locks += 1;
                println!("{} held for {:?}", lease.key().escape_ascii(), lease.remaining());
                // Dropping the lease releases it with the next pass.
            }
        }
    }
    driver.shutdown(Duration::from_secs(1));
    visitor.join().map_err(|_| "the visitor failed")?;
    println!("{locks} locks in {ticks} ticks, {served} visitors served");
    if locks != TICKS {
        return Err(format!("{locks} locks in {ticks} ticks").into());
    }
    Ok(())
}

fn sleep_until(wake: Instant) -> Duration {
    now().until(wake)
}

/// A client that visits the listener while the loop takes locks.
fn visit(address: std::net::SocketAddr) {
    if let Ok(mut stream) = std::net::TcpStream::connect(address) {
        let mut line = String::new();
        if stream.read_to_string(&mut line).is_ok() {
            print!("visitor was told: {line}");
        }
    }
}
