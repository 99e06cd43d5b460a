//! The floor of a hand-over: bare sockets that pass one key round, each contender to the next.
//!
//! They send what Redbolt sends for a turn: a SET and a compare-and-delete to each node, the wake,
//! and the message that a contender queues again. They do nothing else. The next contender is known
//! from the beginning, and the sockets count lines as votes. No contender can be late, and none
//! reads a clock.

use std::io;
use std::time::Duration;

use redbolt::IdleStrategy;
use redbolt::driver::mio::{Events, Poll, Token};

use crate::Anything;
use crate::handover::Contender;
use redbolt_benches::probe::{Link, wait_for};

/// A contender that waits longer than this for a turn fails.
const PATIENCE: Duration = Duration::from_secs(2);

const KEY: &str = "bare";

/// One of the contenders that pass the key round.
pub(crate) struct Bare {
    poll: Poll,
    events: Events,
    nodes: Vec<Node>,
    /// Receives the wakes, through the first node.
    ear: Link,
    wakes: usize,
    wait: IdleStrategy,
    set: Vec<u8>,
    release: Vec<u8>,
    /// The release and the wake behind it.
    release_and_wake: Vec<u8>,
    queue: Vec<u8>,
    buffer: Box<[u8]>,
}

struct Node {
    link: Link,
    /// Commands written so far; one line answers each.
    sent: u64,
    /// Whether the node granted the last SET.
    is_granted: bool,
}

impl Bare {
    /// Connects the `me`-th of `count` contenders; the first one begins.
    pub(crate) fn connect(
        addresses: &[String],
        wait: IdleStrategy,
        me: usize,
        count: usize,
    ) -> Anything<Self> {
        let poll = Poll::new()?;
        let nodes: Vec<_> = links(addresses, &poll)?
            .into_iter()
            .map(|link| Node { link, sent: 0, is_granted: false })
            .collect();
        let ear_at = addresses.first().ok_or("no node")?;
        let mut ear = Link::connect(ear_at, &poll, Token(nodes.len()))?;
        ear.send(&command(&["SUBSCRIBE", &channel(me)]))?;
        let token = format!("{me:040}");
        let next = channel((me + 1) % count);
        let release = command(&["DELIFEQ", KEY, &token]);
        let mut bare = Self {
            poll,
            events: Events::with_capacity(64),
            nodes,
            ear,
            wakes: 0,
            wait,
            set: command(&["SET", KEY, &token, "NX", "PX", "10000"]),
            release_and_wake: [&*release, &*command(&["PUBLISH", &next, WAKE])].concat(),
            release,
            queue: command(&["PUBLISH", &next, "queue"]),
            buffer: vec![0; 64 << 10].into_boxed_slice(),
        };
        // The contender is subscribed once the six lines of the answer are here.
        while bare.ear.answered < 6 {
            bare.pass()?;
        }
        bare.wakes = usize::from(me == 0);
        Ok(bare)
    }

    fn pass(&mut self) -> io::Result<()> {
        wait_for(&mut self.poll, &mut self.events, self.wait, Some(PATIENCE))?;
        if self.events.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for event in &self.events {
            if let Some(node) = self.nodes.get_mut(event.token().0) {
                let is_granted = &mut node.is_granted;
                node.link
                    .receive(&mut self.buffer, |bytes| *is_granted |= bytes.contains(&b'+'))?;
            } else {
                let wakes = &mut self.wakes;
                self.ear.receive(&mut self.buffer, |bytes| {
                    let words = bytes.windows(WAKE.len());
                    *wakes += words.filter(|word| *word == WAKE.as_bytes()).count();
                })?;
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
        for node in &mut self.nodes {
            node.is_granted = false;
            node.send(&self.set, 1)?;
        }
        let quorum = self.nodes.len() / 2 + 1;
        while self.nodes.iter().filter(|node| node.is_granted).count() < quorum {
            self.pass()?;
        }
        Ok(())
    }

    fn unlock(&mut self) -> Anything {
        let (first, others) = self.nodes.split_first_mut().ok_or("no node")?;
        for node in others {
            node.send(&self.release, 1)?;
        }
        first.send(&self.release_and_wake, 2)?;
        while self.nodes.iter().any(|node| node.link.answered < node.sent) {
            self.pass()?;
        }
        let first = self.nodes.first_mut().ok_or("no node")?;
        Ok(first.send(&self.queue, 1)?)
    }
}

impl Node {
    fn send(&mut self, bytes: &[u8], count: u64) -> io::Result<()> {
        self.sent += count;
        self.link.send(bytes)
    }
}

/// The text of a wake.
const WAKE: &str = "wake!";

fn channel(of: usize) -> String {
    format!("bare:{of}")
}

/// A link to each node. Their tokens are their places.
pub(crate) fn links(addresses: &[String], poll: &Poll) -> io::Result<Vec<Link>> {
    let places = addresses.iter().enumerate();
    places.map(|(place, address)| Link::connect(address, poll, Token(place))).collect()
}

pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{words}", words.matches('$').count()).into_bytes()
}
