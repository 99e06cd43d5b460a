//! An engine without sockets, and nodes that answer as the caller tells them.

use std::error::Error;
use std::time::Duration;

use redbolt::engine::{Engine, Event};
use redbolt::inspect::NodeId;
use redbolt::{Config, Instant, LockOptions, RestartGuard, Unlocked};

pub const TTL: Duration = Duration::from_secs(10);

pub struct Rig {
    pub engine: Engine,
    pub now: Instant,
    pub nodes: Vec<NodeId>,
    key: u64,
}

impl Rig {
    /// An engine over `count` nodes, all of them admitted.
    pub fn new(count: usize, in_flight_max: usize) -> Result<Self, Box<dyn Error>> {
        let config = Config::new((1..=count).map(|port| format!("n:{port}")))?
            .restart_guard(RestartGuard::Off)
            .in_flight_max(in_flight_max);
        let now = Instant::from_nanos(1 << 40);
        let mut engine = Engine::new(&config, [1; 32], now)?;
        let nodes: Vec<NodeId> = (0..count).filter_map(NodeId::new).collect();
        engine.handle_timeout(now);
        while engine.poll_connection().is_some() {}
        let mut rig = Self { engine, now, nodes, key: 0 };
        for node in rig.nodes.clone() {
            rig.greet(node);
        }
        Ok(rig)
    }

    /// The node's connection is open, and the node sends its greeting.
    pub fn greet(&mut self, node: NodeId) {
        self.engine.handle_connected(node, self.now);
        let len = self.engine.output(node).len();
        self.engine.handle_sent(node, len);
        let hello = "%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n";
        let info =
            format!("run_id:{}\r\nconnected_slaves:0\r\nuptime_in_seconds:9999", node.index());
        let info = format!("${}\r\n{info}\r\n", info.len()).repeat(4);
        self.engine.handle_bytes(node, format!("{hello}{info}").as_bytes(), self.now);
        // The engine then subscribes to its channel, and writes what it owes behind that.
        let lines = self.engine.output(node).split_inclusive(|&byte| byte == b'\n');
        let subscription: Vec<_> = lines.take(5).map(<[u8]>::to_vec).collect();
        let name = subscription.last().cloned().unwrap_or_default();
        let len = subscription.concat().len();
        let confirmed = [b">3\r\n+subscribe\r\n+", name.as_slice(), b":1\r\n"].concat();
        self.engine.handle_sent(node, len);
        self.engine.handle_bytes(node, &confirmed, self.now);
    }

    /// Takes the output like a socket.
    pub fn send(&mut self) {
        self.send_part(|len| len);
    }

    /// Takes as much of each node's output as `takes` returns for its length.
    fn send_part(&mut self, takes: impl Fn(usize) -> usize) {
        let all = self.engine.nodes_with_output();
        self.engine.drain_output(all, |_, bytes| takes(bytes.len()));
    }

    /// Every node sends `bytes`.
    pub fn answer(&mut self, bytes: &[u8]) {
        for &node in &self.nodes {
            self.engine.handle_bytes(node, bytes, self.now);
        }
        self.engine.handle_timeout(self.now);
    }

    /// One acquire and release of a fresh key, answered by all nodes.
    pub fn cycle(&mut self) -> Result<(), Box<dyn Error>> {
        self.begin()?;
        self.send();
        self.answer(b"+OK\r\n");
        self.unlock()?;
        self.send();
        self.answer(b":1\r\n");
        self.end()
    }

    /// Like [`cycle`](Self::cycle), with sockets that take less and answers that come in parts.
    pub fn cycle_in_parts(
        &mut self,
        takes: impl Fn(usize) -> usize,
        [granted, deleted]: [&[&[u8]]; 2],
    ) -> Result<(), Box<dyn Error>> {
        self.begin()?;
        self.send_part(&takes);
        granted.iter().for_each(|part| self.answer(part));
        self.unlock()?;
        self.send_part(&takes);
        deleted.iter().for_each(|part| self.answer(part));
        self.end()
    }

    #[inline]
    fn begin(&mut self) -> Result<(), Box<dyn Error>> {
        self.now = self.now + Duration::from_micros(50);
        let key = self.next_key();
        self.engine.try_lock(&key, &LockOptions::new(TTL), self.now)?;
        Ok(())
    }

    #[inline]
    fn unlock(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(Event::Lock { result: Ok(lease), .. }) = self.engine.poll_event(self.now) else {
            return Err("not locked".into());
        };
        while self.engine.poll_change().is_some() {}
        self.engine.unlock(lease, self.now)?;
        Ok(())
    }

    #[inline]
    fn end(&mut self) -> Result<(), Box<dyn Error>> {
        match self.engine.poll_event(self.now) {
            Some(Event::Unlock { result: Ok(Unlocked::Released), .. }) => Ok(()),
            _ => Err("not released".into()),
        }
    }

    /// A fresh key of 22 bytes.
    pub fn next_key(&mut self) -> [u8; 22] {
        self.key += 1;
        let mut key = *b"bench:fresh-key:......";
        // Any bytes make a key; these cost almost nothing.
        if let (Some(place), Some(count)) =
            (key.last_chunk_mut::<6>(), self.key.to_le_bytes().first_chunk())
        {
            *place = *count;
        }
        key
    }
}
