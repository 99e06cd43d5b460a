//! A proxy in user space in front of one node: it delays, hangs, refuses and flaps on demand.
//!
//! Each direction of a connection has two threads: a reader, and a writer that sends the bytes that
//! are due. So a delayed chunk does not hold up the chunks behind it. The proxy adds the wake-ups
//! of two threads to each way, some tens of microseconds; both sides of a comparison go through it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redbolt::{Instant, now};

/// The proxy's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Adds this much to a round trip, half of it each way.
    Delay(Duration),
    /// Connections stay open, and no byte goes through.
    Hang,
    /// The proxy closes connections and refuses new ones.
    Refuse,
    /// The proxy refuses and passes by turns of 20 ms each.
    Flap,
}

pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    node: String,
    /// The delay of one way, in nanoseconds.
    delay: AtomicU64,
    is_hung: AtomicBool,
    is_refusing: AtomicBool,
    is_flapping: AtomicBool,
    is_over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A proxy on a free port of loopback in front of `node` (`host:port`), which passes for now.
    pub fn start(node: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            node: node.to_owned(),
            delay: AtomicU64::new(0),
            is_hung: AtomicBool::new(false),
            is_refusing: AtomicBool::new(false),
            is_flapping: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            open: Mutex::new(Vec::new()),
        });
        let its = Arc::clone(&shared);
        thread::spawn(move || accept(&its, listener, address));
        Ok(Self { address, shared })
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn set(&self, mode: Mode) {
        let shared = &self.shared;
        let delay = if let Mode::Delay(delay) = mode { delay / 2 } else { Duration::ZERO };
        shared.delay.store(u64::try_from(delay.as_nanos()).unwrap_or(0), Ordering::Relaxed);
        shared.is_hung.store(mode == Mode::Hang, Ordering::Relaxed);
        shared.is_refusing.store(mode == Mode::Refuse, Ordering::Relaxed);
        shared.is_flapping.store(mode == Mode::Flap, Ordering::Relaxed);
    }
}

/// A proxy in front of each node that adds this much to its round trips, and the proxies'
/// addresses.
pub fn delayed(
    nodes: &[String],
    added: impl IntoIterator<Item = Duration>,
) -> io::Result<(Vec<Proxy>, Vec<String>)> {
    let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node)).collect::<Result<_, _>>()?;
    for (proxy, delay) in proxies.iter().zip(added) {
        proxy.set(Mode::Delay(delay));
    }
    let addresses = proxies.iter().map(Proxy::address).collect();
    Ok((proxies, addresses))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.close_all();
    }
}

impl Shared {
    fn close_all(&self) {
        let Ok(mut open) = self.open.lock() else { return };
        for stream in open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let node = TcpStream::connect(&self.node)?;
        client.set_nonblocking(false)?;
        for stream in [&client, &node] {
            stream.set_nodelay(true)?;
            if let Ok(mut open) = self.open.lock() {
                open.push(stream.try_clone()?);
            }
        }
        self.carry(client.try_clone()?, node.try_clone()?);
        self.carry(node, client);
        Ok(())
    }

    /// Carries one direction of a connection.
    fn carry(self: &Arc<Self>, mut from: TcpStream, to: TcpStream) {
        let (sender, chunks) = channel();
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let mut buffer = [0; 64 << 10];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                let delay = Duration::from_nanos(shared.delay.load(Ordering::Relaxed));
                let bytes = buffer.get(..len).unwrap_or_default().to_vec();
                if sender.send((now() + delay, bytes)).is_err() {
                    return;
                }
            }
        });
        let shared = Arc::clone(self);
        thread::spawn(move || shared.deliver(&chunks, to));
    }

    fn deliver(&self, chunks: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
        while let Ok((due, bytes)) = chunks.recv() {
            wait_until(due);
            while self.is_hung.load(Ordering::Relaxed) && !self.is_over.load(Ordering::Relaxed) {
                thread::sleep(POLL);
            }
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}

const POLL: Duration = Duration::from_millis(1);

/// The length of a flapping node's refusing or passing turn, in milliseconds.
const TURN: u128 = 20;

/// How late a sleep may end.
const SLEEP_SLACK: Duration = Duration::from_micros(120);

/// Sleeps, or only yields where a sleep would end much too late. Yielding costs other threads
/// processor time.
fn wait_until(due: Instant) {
    let left = now().until(due);
    if left > SLEEP_SLACK {
        thread::sleep(left);
    }
    while now() < due {
        thread::yield_now();
    }
}

fn accept(shared: &Arc<Shared>, listener: TcpListener, address: SocketAddr) {
    let mut listener = listener.set_nonblocking(true).is_ok().then_some(listener);
    let begin = now();
    while !shared.is_over.load(Ordering::Relaxed) {
        let turn = begin.until(now()).as_millis() / TURN;
        let is_away = shared.is_flapping.load(Ordering::Relaxed) && turn.is_multiple_of(2);
        if is_away || shared.is_refusing.load(Ordering::Relaxed) {
            if listener.take().is_some() {
                shared.close_all();
            }
        } else if listener.is_none() {
            listener = TcpListener::bind(address).ok();
            if let Some(listener) = &listener {
                let _ = listener.set_nonblocking(true);
            }
        }
        while let Some(Ok((client, _))) = listener.as_ref().map(TcpListener::accept) {
            // If the proxy cannot reach the node, it closes the accepted connection.
            let _ = shared.connect(client);
        }
        thread::sleep(POLL);
    }
}
