//! One cycle of the engine without sockets: acquire and release of a fresh 22-byte key on N nodes.
//!
//! `cargo bench --bench engine_cycle -- NODES CYCLES` runs that many; the difference of two lengths
//! under `valgrind --tool=callgrind`, divided by the difference of cycles, is exact on any machine.
//! Without arguments it prints a time a cycle.

use std::error::Error;
use std::time::Duration;

use redbolt::engine::{Engine, Event};
use redbolt::quorum::NodeId;
use redbolt::{Acquire, Config, Instant, RestartGuard, Unlocked, now};

const TTL: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let counts = match numbers.next() {
        Some(nodes) => vec![nodes],
        None => vec![1, 3, 5, 7],
    };
    let cycles = numbers.next().unwrap_or(200_000);
    for nodes in counts {
        let mut rig = Rig::new(nodes)?;
        let begin = now();
        for _ in 0..cycles {
            rig.cycle()?;
        }
        let time = begin.until(now()).as_nanos();
        println!("{nodes} nodes: {} ns a cycle", time / u128::try_from(cycles.max(1))?);
    }
    Ok(())
}

struct Rig {
    engine: Engine,
    now: Instant,
    nodes: Vec<NodeId>,
    key: u64,
}

impl Rig {
    fn new(count: usize) -> Result<Self, Box<dyn Error>> {
        let config = Config::new((1..=count).map(|port| format!("n:{port}")))?;
        let now = Instant::from_nanos(1 << 40);
        let mut engine = Engine::new(&config.restart_guard(RestartGuard::Off), [1; 32], now)?;
        let nodes: Vec<NodeId> = (0..count).filter_map(NodeId::new).collect();
        engine.handle_timeout(now);
        while engine.poll_connection().is_some() {}
        for &node in &nodes {
            engine.handle_connected(node, now);
            let hello = "%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n";
            let info = format!("run_id:{}\r\nuptime_in_seconds:9999", node.index());
            let info = format!("${}\r\n{info}\r\n", info.len()).repeat(4);
            engine.handle_bytes(node, format!("{hello}{info}").as_bytes(), now);
        }
        let mut rig = Self { engine, now, nodes, key: 0 };
        rig.send();
        Ok(rig)
    }

    /// Takes the output as a socket would.
    fn send(&mut self) {
        let all = self.engine.nodes_with_output();
        self.engine.drain_output(all, |_, bytes| bytes.len());
    }

    fn answer(&mut self, bytes: &[u8]) {
        for &node in &self.nodes {
            self.engine.handle_bytes(node, bytes, self.now);
        }
        self.engine.handle_timeout(self.now);
    }

    fn cycle(&mut self) -> Result<(), Box<dyn Error>> {
        self.now = self.now + Duration::from_micros(50);
        let key = self.next_key();
        self.engine.acquire(&key, &Acquire::new(TTL), self.now)?;
        self.send();
        self.answer(b"+OK\r\n");
        let Some(Event::Lock { result: Ok(lease), .. }) = self.engine.poll_event(self.now) else {
            return Err("not locked".into());
        };
        while self.engine.poll_late_vote().is_some() {}
        self.engine.release(lease, self.now)?;
        self.send();
        self.answer(b":1\r\n");
        match self.engine.poll_event(self.now) {
            Some(Event::Unlock { result: Unlocked::Released, .. }) => Ok(()),
            _ => Err("not released".into()),
        }
    }

    fn next_key(&mut self) -> [u8; 22] {
        self.key += 1;
        let mut key = *b"bench:fresh-key:......";
        // Any bytes make a key; these cost next to nothing.
        if let (Some(place), Some(count)) =
            (key.last_chunk_mut::<6>(), self.key.to_le_bytes().first_chunk())
        {
            *place = *count;
        }
        key
    }
}
