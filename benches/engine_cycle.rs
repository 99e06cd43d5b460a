//! One cycle of the engine without sockets: acquire and release of a fresh 22-byte key on N nodes.
//!
//! `cargo bench --bench engine_cycle -- NODES CYCLES` runs that many; the difference of two lengths
//! under `valgrind --tool=callgrind`, divided by the difference of cycles, is exact on any machine.
//! Without arguments it prints a time a cycle.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use redbolt::engine::{Engine, Event};
use redbolt::quorum::NodeId;
use redbolt::{Acquire, Config, Instant, RestartGuard, now};

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
        for node in self.engine.nodes_with_output() {
            let len = black_box(self.engine.output(node)).len();
            self.engine.handle_sent(node, len);
        }
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
        let Some(Event::Lock { result, .. }) = self.engine.poll_event(self.now) else {
            return Err("undecided".into());
        };
        while self.engine.poll_late_vote().is_some() {}
        self.engine.release(result?, self.now)?;
        self.send();
        self.answer(b":1\r\n");
        black_box(self.engine.poll_event(self.now)).ok_or("unreleased")?;
        Ok(())
    }

    fn next_key(&mut self) -> [u8; 22] {
        self.key += 1;
        let mut key = *b"bench:0000000000000000";
        for (place, byte) in key.iter_mut().rev().take(16).enumerate() {
            *byte = b'a' + u8::try_from(self.key >> (4 * place) & 15).unwrap_or(0);
        }
        key
    }
}
