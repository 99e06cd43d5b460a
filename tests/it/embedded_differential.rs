//! Embedded nodes answer byte for byte as the real servers that they pass for.
//!
//! Random command sequences from two connections run on a real server and on the model of the same
//! flavor. A failure prints its seed; `REDBOLT_SEED` begins with another one. Numbers that depend
//! on the moment (PTTL) or the connection (ids) are blanked on both sides.

mod requests;

use std::fmt::Write as _;
use std::time::Duration;

use redbolt::embedded::model::{Life, Progress, Server, ServerOptions, Session};

use self::requests::{Request, Requests, words};
use super::common::{Kind, RealServer, Wire, kind_or_skip, now, request};

#[test]
fn redis_7_0_and_its_model_answer_alike() {
    compare(Kind::Redis70);
}

#[test]
fn redis_8_0_and_its_model_answer_alike() {
    compare(Kind::Redis80);
}

#[test]
fn redis_8_6_and_its_model_answer_alike() {
    compare(Kind::Redis86);
}

#[test]
fn valkey_8_1_and_its_model_answer_alike() {
    compare(Kind::Valkey81);
}

#[test]
fn valkey_9_1_and_its_model_answer_alike() {
    compare(Kind::Valkey91);
}

fn compare(kind: Kind) {
    let Some(kind) = kind_or_skip(kind) else {
        return;
    };
    let server = RealServer::start(kind, &[]);
    let first = std::env::var("REDBOLT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + SEQUENCES {
        let mut pair = Pair::new(&server, seed);
        let mut requests = Requests::new(seed);
        pair.run(0, &[words(&["FLUSHALL"]), words(&["SCRIPT", "FLUSH"])]);
        if requests.chance(0.5) {
            pair.run(0, &[words(&["HELLO", "3"])]);
            pair.run(1, &[words(&["HELLO", "3"])]);
        }
        for _ in 0..requests.up_to(30) {
            let connection = usize::from(requests.chance(0.3));
            let batch = requests.batch();
            pair.run(connection, &batch);
            if requests.chance(0.02) {
                pair.run(connection, &[requests.short_lived()]);
                // Time has to pass on the real server's clock; nothing is waited for.
                std::thread::sleep(Duration::from_millis(4));
            }
        }
    }
}

/// A real server and its model, two connections to each.
struct Pair {
    wires: [Wire; 2],
    model: Server,
    sessions: [Session; 2],
    history: String,
}

impl Pair {
    fn new(server: &RealServer, seed: u64) -> Self {
        let life = Life::new([1; 20], [2; 20], now(), 1_700_000_000_000);
        let mut model = Server::new(&ServerOptions::new(server.kind().flavor()), life);
        let sessions = [model.connect(), model.connect()];
        let wires = [server.connect(), server.connect()];
        let history = format!("{}, REDBOLT_SEED={seed}\n", server.kind().name());
        Self { wires, model, sessions, history }
    }

    /// Sends a pipeline in one write to both and compares all its replies.
    fn run(&mut self, connection: usize, batch: &[Request]) {
        for args in batch {
            let _ = writeln!(self.history, "{connection}> {}", printed(args));
        }
        let bytes = batch.iter().flat_map(|args| request(args)).collect::<Vec<u8>>();
        let session = self.sessions.get_mut(connection).expect("there are two");
        let mut ours = Vec::new();
        let progress = self.model.execute(session, &bytes, now(), &mut ours);
        assert_eq!(progress, Progress::Idle);
        let wire = self.wires.get_mut(connection).expect("there are two");
        wire.send(&bytes).expect("the server reads");
        let replies = batch.iter().map(|_| wire.reply()).collect::<Result<Vec<_>, _>>();
        let real = replies.unwrap_or_else(|error| panic!("{}{error}", self.history)).concat();
        let (real, ours) = (blank(&real), blank(&ours));
        assert!(
            real == ours,
            "{}real: {}\nours: {}",
            self.history,
            real.escape_ascii(),
            ours.escape_ascii()
        );
    }
}

/// Blanks what may differ: large numbers (times) and the connection's id in HELLO.
fn blank(reply: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut after_id = false;
    for line in reply.split_inclusive(|byte| *byte == b'\n') {
        let digits = line.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        let number =
            digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<i64>().ok());
        match number {
            Some(number) if after_id || number > 5_000 => text.extend_from_slice(b":(blank)\r\n"),
            Some(_) | None => text.extend_from_slice(line),
        }
        after_id = line == b"id\r\n";
    }
    text
}

fn printed(args: &Request) -> String {
    let args: Vec<_> = args.iter().map(|arg| format!("\"{}\"", arg.escape_ascii())).collect();
    args.join(" ")
}

const SEQUENCES: u64 = 400;
