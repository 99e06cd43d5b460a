//! The floor of a transfer: bare sockets that hand one key round by Redbolt's script, each
//! contender to the next.
//!
//! They send what Redbolt sends for such a turn: the script to each node, and the message that a
//! contender queues again. They do nothing else. The next contender is known from the beginning,
//! and none can be late.

use std::io;
use std::time::Duration;

use redbolt::IdleStrategy;
use redbolt::driver::mio::{Events, Poll};

use crate::Anything;
use crate::bare::{command, links};
use crate::handover::Contender;
use redbolt_benches::probe::{Link, wait_for};

/// A contender that waits longer than this for a turn fails.
const PATIENCE: Duration = Duration::from_secs(2);

const KEY: &str = "bare:transfers";

/// The same script as in `src/command/mod.rs`.
const SCRIPT: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
     redis.call('del',KEYS[1]) local s=redis.pcall('set',KEYS[1],ARGV[2],'PX',ARGV[3]) \
     if type(s)=='table' and s.ok then local n=redis.pcall('publish',ARGV[4],ARGV[5]) \
     if type(n)=='number' and n>0 then return 2 end redis.call('del',KEYS[1]) end return 1";

/// A byte that only the message of a transfer has.
const TRANSFER: u8 = b'=';

/// The byte with which only pushes begin, once the contender is subscribed, and the lines of a
/// push.
const PUSH: (u8, i64) = (b'>', 7);

/// As long as Redbolt's.
const MESSAGE_LEN: usize = 80;

/// One of the contenders that hand the key round.
pub(crate) struct BareTransfers {
    poll: Poll,
    events: Events,
    nodes: Vec<Node>,
    wait: IdleStrategy,
    turns: u64,
    transfer: Vec<u8>,
    queue: Vec<u8>,
    buffer: Box<[u8]>,
}

struct Node {
    link: Link,
    /// Lines that the contender awaits and has not received.
    awaited: i64,
    /// How often this node has handed the key to this contender.
    transfers: u64,
}

impl BareTransfers {
    /// Connects the `me`-th of `count` contenders; the first one begins.
    pub(crate) fn connect(
        addresses: &[String],
        wait: IdleStrategy,
        me: usize,
        count: usize,
    ) -> Anything<Self> {
        let poll = Poll::new()?;
        let nodes = links(addresses, &poll)?
            .into_iter()
            .map(|link| Node { link, awaited: 0, transfers: 0 })
            .collect();
        let next = (me + 1) % count;
        let transfer = format!("{}{}", char::from(TRANSFER), ".".repeat(MESSAGE_LEN));
        let words = [
            "EVAL",
            SCRIPT,
            "1",
            KEY,
            &token(me),
            &token(next),
            "10000",
            &channel(next),
            &transfer,
        ];
        let mut bare = Self {
            poll,
            events: Events::with_capacity(64),
            nodes,
            wait,
            turns: 0,
            transfer: command(&words),
            queue: command(&["PUBLISH", &channel(next), &".".repeat(MESSAGE_LEN)]),
            buffer: vec![0; 64 << 10].into_boxed_slice(),
        };
        bare.greet(me)?;
        Ok(bare)
    }

    /// Subscribes at each node. The first contender writes its token to the key.
    fn greet(&mut self, me: usize) -> Anything {
        let set = if me == 0 {
            command(&["SET", KEY, &token(me), "PX", "10000"])
        } else {
            command(&["PING"])
        };
        let hello = [&*command(&["HELLO", "3"]), &*set].concat();
        for node in &mut self.nodes {
            node.link.send(&hello)?;
        }
        // The answer to HELLO has no `+`.
        let mut greeted = vec![false; self.nodes.len()];
        while greeted.contains(&false) {
            self.pass(|index, bytes| {
                if let Some(greeted) = greeted.get_mut(index) {
                    *greeted |= bytes.contains(&b'+');
                }
            })?;
        }
        for node in &mut self.nodes {
            // The six lines of the answer, of which the first begins with the sign of a push.
            node.awaited = 6 - PUSH.1;
            node.link.send(&command(&["SUBSCRIBE", &channel(me)]))?;
            node.transfers = u64::from(me == 0);
        }
        self.answers()
    }

    fn pass(&mut self, mut see: impl FnMut(usize, &[u8])) -> io::Result<()> {
        wait_for(&mut self.poll, &mut self.events, self.wait, Some(PATIENCE))?;
        if self.events.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for event in &self.events {
            let index = event.token().0;
            let Some(node) = self.nodes.get_mut(index) else { continue };
            let Node { link, awaited, transfers } = node;
            link.receive(&mut self.buffer, |bytes| {
                let count = |byte: u8| bytes.iter().filter(|other| **other == byte).count();
                *awaited += PUSH.1 * count(PUSH.0) as i64 - count(b'\n') as i64;
                *transfers += count(TRANSFER) as u64;
                see(index, bytes);
            })?;
        }
        Ok(())
    }

    /// Waits for all answers.
    fn answers(&mut self) -> Anything {
        while self.nodes.iter().any(|node| node.awaited != 0) {
            self.pass(|_, _| {})?;
        }
        Ok(())
    }
}

impl Contender for BareTransfers {
    fn lock(&mut self) -> Anything {
        self.turns += 1;
        let quorum = self.nodes.len() / 2 + 1;
        while self.nodes.iter().filter(|node| node.transfers >= self.turns).count() < quorum {
            self.pass(|_, _| {})?;
        }
        Ok(())
    }

    fn unlock(&mut self) -> Anything {
        for node in &mut self.nodes {
            node.awaited += 1;
            node.link.send(&self.transfer)?;
        }
        self.answers()?;
        let first = self.nodes.first_mut().ok_or("no node")?;
        first.awaited += 1;
        Ok(first.link.send(&self.queue)?)
    }
}

fn token(of: usize) -> String {
    format!("{of:040}")
}

fn channel(of: usize) -> String {
    format!("bare:transfers:{of:016}")
}
