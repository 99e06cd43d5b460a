//! The floor of a hand-over: bare sockets that pass one key round, each contender to the next.
//!
//! They send what Redbolt sends for a turn (a SET and a compare-and-delete to each node, the wake, the
//! word that one queues again) and nothing else: who comes next is known from the beginning, votes are
//! lines, nobody can be late, and no time is looked at.

use std::io::{self, Read, Write};
use std::time::Duration;

use redbolt::mio::net::TcpStream;
use redbolt::mio::{Events, Interest, Poll, Token};
use redbolt::{Wait, now};

use crate::Anything;
use crate::handover::Contender;

/// Nobody waits longer than this for a turn.
const PATIENCE: Duration = Duration::from_secs(2);

const KEY: &str = "bare";

/// One of those who pass the key round.
pub(crate) struct Bare {
    poll: Poll,
    events: Events,
    links: Vec<Link>,
    /// Hears the wakes, by the first node.
    ear: Link,
    wakes: usize,
    wait: Wait,
    set: Vec<u8>,
    release: Vec<u8>,
    wake: Vec<u8>,
    queue: Vec<u8>,
    buffer: Box<[u8]>,
}

struct Link {
    stream: TcpStream,
    /// Lines that are awaited, and whether a SET among them was granted.
    open: usize,
    is_granted: bool,
}

impl Bare {
    /// The `me`-th of `count`; the first begins.
    pub(crate) fn connect(
        addresses: &[String],
        wait: Wait,
        me: usize,
        count: usize,
    ) -> Anything<Self> {
        let poll = Poll::new()?;
        let links = addresses.iter().enumerate();
        let links = links.map(|(index, address)| Link::connect(address, &poll, index));
        let links = links.collect::<io::Result<Vec<_>>>()?;
        let mut ear = Link::connect(addresses.first().ok_or("no node")?, &poll, links.len())?;
        ear.stream.write_all(&command(&["SUBSCRIBE", &channel(me)]))?;
        let token = format!("{me:040}");
        let next = channel((me + 1) % count);
        let mut bare = Self {
            poll,
            events: Events::with_capacity(64),
            links,
            ear,
            wakes: 0,
            wait,
            set: command(&["SET", KEY, &token, "NX", "PX", "10000"]),
            release: command(&["DELIFEQ", KEY, &token]),
            wake: command(&["PUBLISH", &next, WAKE]),
            queue: command(&["PUBLISH", &next, "queue"]),
            buffer: vec![0; 64 << 10].into_boxed_slice(),
        };
        // It is subscribed once the six lines of the answer are here.
        bare.ear.open = 6;
        while bare.ear.open > 0 {
            bare.pass()?;
        }
        bare.wakes = usize::from(me == 0);
        Ok(bare)
    }

    fn quorum(&self) -> usize {
        self.links.len() / 2 + 1
    }

    fn pass(&mut self) -> io::Result<()> {
        let spin = match self.wait {
            Wait::SpinThenPark(spin) => spin,
            Wait::Spin => PATIENCE,
            Wait::Park | _ => Duration::ZERO,
        };
        let end = now() + spin;
        self.poll.poll(&mut self.events, Some(Duration::ZERO))?;
        while self.events.is_empty() && now() < end {
            std::thread::yield_now();
            self.poll.poll(&mut self.events, Some(Duration::ZERO))?;
        }
        if self.events.is_empty() {
            self.poll.poll(&mut self.events, Some(PATIENCE))?;
        }
        if self.events.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for event in &self.events {
            if let Some(link) = self.links.get_mut(event.token().0) {
                let bytes = link.receive(&mut self.buffer)?;
                link.is_granted |= bytes.contains(&b'+');
            } else {
                let bytes = self.ear.receive(&mut self.buffer)?;
                let wakes = bytes.windows(WAKE.len()).filter(|bytes| *bytes == WAKE.as_bytes());
                self.wakes += wakes.count();
            }
        }
        Ok(())
    }
}

impl Contender for Bare {
    fn lock(&mut self) -> Anything {
        while self.wakes == 0 {
            self.pass()?;
        }
        self.wakes -= 1;
        for link in &mut self.links {
            link.is_granted = false;
            link.send(&[&self.set])?;
        }
        while self.links.iter().filter(|link| link.is_granted).count() < self.quorum() {
            self.pass()?;
        }
        Ok(())
    }

    fn unlock(&mut self) -> Anything {
        let (first, others) = self.links.split_first_mut().ok_or("no node")?;
        for link in others {
            link.send(&[&self.release])?;
        }
        first.send(&[&self.release, &self.wake])?;
        while self.links.iter().any(|link| link.open > 0) {
            self.pass()?;
        }
        let first = self.links.first_mut().ok_or("no node")?;
        Ok(first.send(&[&self.queue])?)
    }
}

impl Link {
    fn connect(address: &str, poll: &Poll, index: usize) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
        Ok(Self { stream, open: 0, is_granted: false })
    }

    /// Sends commands that are answered by a line each.
    fn send(&mut self, commands: &[&[u8]]) -> io::Result<()> {
        self.open += commands.len();
        self.stream.write_all(&commands.concat())
    }

    fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let len = match self.stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        let bytes = buffer.get(..len).unwrap_or_default();
        if bytes.starts_with(b"-") {
            return Err(io::Error::other(String::from_utf8_lossy(bytes).into_owned()));
        }
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.open = self.open.saturating_sub(lines);
        Ok(bytes)
    }
}

/// What a wake says.
const WAKE: &str = "wake!";

fn channel(of: usize) -> String {
    format!("bare:{of}")
}

fn command(words: &[&str]) -> Vec<u8> {
    let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{words}", words.matches('$').count()).into_bytes()
}
