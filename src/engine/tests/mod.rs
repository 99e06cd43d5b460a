//! The rules of rounds, releases and extensions, shown without a socket: each test plays the nodes
//! by hand.

mod acquiring;
mod asking;
#[cfg(feature = "sim")]
mod broken;
mod claims;
#[cfg(feature = "metrics")]
mod counting;
mod exchange;
mod extending;
mod fencing;
mod fuzzed;
mod handing;
mod healing;
mod joint;
mod keeping;
mod limits;
mod members;
mod notices;
#[cfg(feature = "sim")]
mod outliving;
mod ownership;
mod patience;
mod prefixed;
mod refusing;
mod releasing;
mod set_ends;
mod sets;
mod siblings;
mod slots;
mod suspended;
mod transfers;
mod trouble;
mod untimely;
mod waiting;
mod waking;

use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::error::{Cause, ExtendError, LockError, Unlocked, Vote};
use crate::guards::RestartGuard;
use crate::options::LockOptions;
use crate::quorum::NodeId;
use crate::time::Instant;

/// An engine and the bytes that each of its nodes has not answered yet.
struct Rig {
    engine: Engine,
    now: Instant,
    /// The requests, as words, that each node has received and not answered.
    inbox: Vec<Vec<Vec<String>>>,
}

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(10);

const HELLO: &str = "%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n";

fn node(index: usize) -> NodeId {
    NodeId::new(index).unwrap()
}

impl Rig {
    /// `nodes` nodes, all admitted.
    fn new(nodes: usize) -> Self {
        Self::with(nodes, |config| config)
    }

    fn with(nodes: usize, change: impl FnOnce(Config) -> Config) -> Self {
        let mut rig = Self::unconnected(nodes, change);
        for index in 0..nodes {
            rig.connect(index);
        }
        rig
    }

    /// `listed` nodes, and others that `change` adds.
    fn joint(listed: usize, nodes: usize, change: impl FnOnce(Config) -> Config) -> Self {
        let mut rig = Self::of(listed, nodes, change);
        for index in 0..nodes {
            rig.connect(index);
        }
        rig
    }

    fn unconnected(nodes: usize, change: impl FnOnce(Config) -> Config) -> Self {
        Self::of(nodes, nodes, change)
    }

    fn of(listed: usize, nodes: usize, change: impl FnOnce(Config) -> Config) -> Self {
        let config = Config::new((1..=listed).map(|port| format!("n:{port}"))).unwrap();
        let config = config.direct_wake(false).transfers_in_row(0);
        let config = change(config.restart_guard(RestartGuard::Off));
        let now = Instant::from_nanos(1_000_000_000_000);
        let engine = Engine::new(&config, [7; 32], now).unwrap();
        let mut rig = Self { engine, now, inbox: vec![Vec::new(); nodes] };
        rig.pass();
        rig
    }

    /// Connects a node and answers its greeting: a Valkey 9.1 with its own run id.
    fn connect(&mut self, index: usize) {
        self.greet(
            index,
            HELLO,
            &format!("run_id:{index}\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n"),
        );
    }

    /// Time passes until the engine asks for a connection to the node.
    fn until_wanted(&mut self, index: usize) {
        for _ in 0..10_000 {
            self.pass();
            if self.engine.wants_connection(node(index)) {
                return;
            }
            self.advance(MS);
        }
        panic!("node {index} is never connected to");
    }

    fn greet(&mut self, index: usize, hello: &str, info: &str) {
        self.until_wanted(index);
        self.engine.handle_connected(node(index), self.now);
        self.collect();
        let greeting: Vec<_> = self.inbox[index].drain(..).collect();
        assert_eq!(greeting[0][0], "HELLO");
        self.receive(index, hello);
        for _ in 1..greeting.len() {
            self.receive(index, &format!("${}\r\n{info}\r\n", info.len()));
        }
        self.collect();
    }

    fn receive(&mut self, index: usize, bytes: &(impl AsRef<[u8]> + ?Sized)) {
        self.engine.handle_bytes(node(index), bytes.as_ref(), self.now);
    }

    /// The node answers its oldest request.
    fn answer(&mut self, index: usize, bytes: &str) {
        self.collect();
        assert!(!self.inbox[index].is_empty(), "node {index} has nothing to answer");
        self.inbox[index].remove(0);
        self.receive(index, bytes);
    }

    fn answer_all(&mut self, nodes: impl IntoIterator<Item = usize>, bytes: &str) {
        for index in nodes {
            self.answer(index, bytes);
        }
    }

    fn lose(&mut self, index: usize) {
        self.collect();
        self.inbox[index].clear();
        self.engine.handle_lost(node(index), Cause::Closed, self.now);
    }

    /// Takes the bytes that the engine wants to send.
    fn collect(&mut self) {
        for (index, inbox) in self.inbox.iter_mut().enumerate() {
            let output = self.engine.output(node(index)).to_vec();
            self.engine.handle_sent(node(index), output.len());
            inbox.extend(commands(&output));
        }
    }

    /// The nodes answer none of the requests so far.
    fn clear(&mut self) {
        self.collect();
        self.inbox.iter_mut().for_each(Vec::clear);
    }

    /// The names of the commands that wait at a node.
    fn waiting(&mut self, index: usize) -> Vec<String> {
        self.collect();
        self.inbox[index].iter().map(|command| command[0].clone()).collect()
    }

    fn pass(&mut self) {
        self.engine.handle_timeout(self.now);
        while self.engine.poll_connection().is_some() {}
    }

    /// Time passes, attended: a pass at each deadline.
    fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let next = self.engine.next_deadline().unwrap_or(end).max(self.now + MS / 10);
            self.now = next.min(end).min(self.now + 10 * MS);
            self.pass();
        }
    }

    fn acquire(&mut self, key: &str) -> OpId {
        self.acquire_with(key, LockOptions::new(TTL))
    }

    fn acquire_with(&mut self, key: &str, acquire: LockOptions) -> OpId {
        self.engine.acquire(key.as_bytes(), &acquire, self.now).unwrap()
    }

    fn lock_result(&mut self) -> Option<Result<LeaseId, LockError>> {
        let event = self.engine.poll_event(self.now)?;
        let Event::Lock { result, .. } = event else { panic!("not a lock: {event:?}") };
        Some(result)
    }

    fn locked(&mut self) -> LeaseId {
        self.lock_result().expect("decided").expect("won")
    }

    fn refused(&mut self) -> LockError {
        self.lock_result().expect("decided").expect_err("not won")
    }

    /// A lease that every node granted.
    fn lease(&mut self, key: &str) -> LeaseId {
        self.acquire(key);
        self.answer_all(0..self.inbox.len(), "+OK\r\n");
        self.locked()
    }
}

/// Splits requests into their words.
fn commands(mut bytes: &[u8]) -> Vec<Vec<String>> {
    let mut decoder = crate::resp::Decoder::new(crate::resp::Limits::default());
    let mut commands = Vec::new();
    while let Some(frame) = decoder.frame(bytes).unwrap() {
        let crate::resp::Reply::Array(words) = frame.reply() else { panic!("not a command") };
        let word = |word: crate::resp::Reply<'_>| {
            String::from_utf8_lossy(word.text().unwrap()).into_owned()
        };
        commands.push(words.map(word).collect());
        bytes = &bytes[frame.len()..];
    }
    assert!(bytes.is_empty(), "a command in pieces");
    commands
}

fn vote_of(error: &LockError, index: usize) -> Vote {
    let Some(ballot) = error.ballot() else { panic!("no ballot: {error}") };
    ballot.votes().nth(index).unwrap().1
}
