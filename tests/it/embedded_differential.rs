//! Embedded nodes answer byte for byte as the real servers that they pass for.
//!
//! Random command sequences from two connections run on a real server and on the model of the same
//! flavor. A failure prints its seed; `REDBOLT_SEED` begins with another one. Numbers that depend
//! on the moment (PTTL) or the connection (ids) are blanked on both sides.

use std::fmt::Write as _;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use redbolt::embedded::model::{Life, Progress, Server, ServerOptions, Session};

use super::common::{Kind, RealServer, Wire, kind_or_skip, now, request};

type Request = Vec<Vec<u8>>;

const RELEASE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return \
                       redis.call('del',KEYS[1]) else return 0 end";
const EXTEND: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return \
                      redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

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
        let mut rng = StdRng::seed_from_u64(seed);
        pair.run(0, &[words(&["FLUSHALL"]), words(&["SCRIPT", "FLUSH"])]);
        if rng.random_bool(0.5) {
            for connection in 0..2 {
                pair.run(connection, &[words(&["HELLO", "3"])]);
            }
        }
        for _ in 0..rng.random_range(5..30) {
            let connection = usize::from(rng.random_bool(0.3));
            let len = if rng.random_bool(0.6) { 1 } else { rng.random_range(2..6) };
            let batch: Vec<_> = (0..len).map(|_| random_request(&mut rng)).collect();
            pair.run(connection, &batch);
            if rng.random_bool(0.02) {
                let key = *KEYS.choose(&mut rng).expect("there are keys");
                pair.run(
                    connection,
                    &[vec![b"SET".into(), key.into(), b"v".into(), b"PX".into(), b"1".into()]],
                );
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
        let bytes = batch.iter().flat_map(|args| request(args)).collect::<Vec<u8>>();
        let wire = self.wires.get_mut(connection).expect("there are two");
        wire.send(&bytes).expect("the server reads");
        let mut real = Vec::new();
        for args in batch {
            let _ = writeln!(self.history, "{connection}> {}", printed(args));
            let reply = wire.reply();
            real.push(reply.unwrap_or_else(|error| panic!("{}{error}", self.history)));
        }
        let session = self.sessions.get_mut(connection).expect("there are two");
        let mut ours = Vec::new();
        let progress = self.model.execute(session, &bytes, now(), &mut ours);
        assert_eq!(progress, Progress::Idle);
        let (real, ours) = (blank(&real.concat()), blank(&ours));
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

fn words(words: &[&str]) -> Request {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn printed(args: &Request) -> String {
    let args: Vec<_> = args.iter().map(|arg| format!("\"{}\"", arg.escape_ascii())).collect();
    args.join(" ")
}

const SEQUENCES: u64 = 400;
const KEYS: [&[u8]; 6] = [b"a", b"b", b"list", b"", b"k\0\r\n*1\r\n", b"\xff'\"\\ key"];
const VALUES: [&[u8]; 7] = [b"v", b"w", b"", b"10", b"\r\n$-1\r\n", b"\0\x01\xfe", b"a longer one"];
const AMOUNTS: [&str; 12] = [
    "60000",
    "90000",
    "100000",
    "0",
    "-1",
    "abc",
    "",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "060000",
    "1.5",
];
const SET_OPTIONS: [&str; 14] = [
    "NX", "XX", "GET", "KEEPTTL", "PX", "EX", "PXAT", "EXAT", "IFEQ", "IFNE", "nx", "FOO", "PX",
    "GET",
];
/// `K` is a key, `V` a value, `T` an amount of time, `O` options of SET, `E` of PEXPIRE; `SR` and
/// `SE` are the scripts, `HR` and `HE` their hashes. Heavy rows stand more than once.
const TEMPLATES: [&str; 66] = [
    "SET K V",
    "SET K V NX PX T",
    "SET K V NX PX 60000",
    "SET K V PX 60000",
    "SET K V O",
    "SET K V O",
    "SET K V O O",
    "SET K V IFEQ V PX 60000",
    "SET K V IFEQ V",
    "SET K V IFEQ V GET",
    "SET K V NX GET",
    "SET K V PXAT 1",
    "SET K V EXAT T",
    "GET K",
    "GET K",
    "GET K",
    "DEL K",
    "DEL K K",
    "UNLINK K K",
    "EXISTS K K",
    "PTTL K",
    "PTTL K",
    "TTL K",
    "PEXPIRE K T",
    "PEXPIRE K T E",
    "PEXPIRE K 70000 E E",
    "TYPE K",
    "DELIFEQ K V",
    "DELIFEQ K V",
    "DELEX K IFEQ V",
    "DELEX K IFNE V",
    "DELEX K",
    "DELEX K E V",
    "RPUSH list V V",
    "RPUSH K V",
    "EVAL SR 1 K V",
    "EVAL SE 1 K V T",
    "EVALSHA HR 1 K V",
    "EVALSHA HE 1 K V 80000",
    "EVAL SR T K V",
    "EVAL SE 1 K",
    "EVAL SR 0 V",
    "SCRIPT LOAD SR",
    "SCRIPT LOAD SE",
    "SCRIPT EXISTS HR HE V",
    "SCRIPT FLUSH",
    "WATCH K",
    "WATCH K K",
    "UNWATCH",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "PING",
    "PING V",
    "ECHO V",
    "SELECT 0",
    "SELECT T",
    "CLIENT SETNAME V",
    "CLIENT GETNAME",
    "CLIENT NO-EVICT E",
    "CONFIG GET maxmemory-policy",
    "HELLO",
    "FOO K V",
];
/// Rarer rows, drawn one time in twenty.
const RARE: [&str; 22] = [
    "SELECT 1",
    "FLUSHDB",
    "FLUSHALL E",
    "HELLO 3",
    "HELLO 2",
    "HELLO T",
    "HELLO 3 SETNAME V",
    "HELLO 3 SETNAME ok FOO",
    "AUTH V",
    "CLIENT SETINFO LIB-NAME V",
    "CLIENT V",
    "CLIENT NO-TOUCH on",
    "SCRIPT V K",
    "CONFIG SET maxmemory-policy V",
    "CONFIG SET V V",
    "CONFIG V",
    "RESET",
    "TYPE K K",
    "K V K V",
    "EXEC V",
    "MULTI V",
    "PUBLISH K V",
];

fn random_request(rng: &mut StdRng) -> Request {
    let rare = rng.random_bool(0.05);
    let template = if rare { RARE.choose(rng) } else { TEMPLATES.choose(rng) };
    let mut args: Request = Vec::new();
    for word in template.expect("there are templates").split(' ') {
        fill(word, rng, &mut args);
    }
    // Now and then with an argument too few or too many, or in another case.
    match rng.random_range(0..60) {
        0 if args.len() > 1 => drop(args.pop()),
        1 => args.push(VALUES.choose(rng).map_or(Vec::new(), |value| value.to_vec())),
        2 => args.iter_mut().take(1).for_each(|name| name.make_ascii_lowercase()),
        _ => {}
    }
    args
}

fn fill(word: &str, rng: &mut StdRng, args: &mut Request) {
    let one = |choice: &[&str], rng: &mut StdRng| {
        choice.choose(rng).map_or(Vec::new(), |word| word.as_bytes().to_vec())
    };
    match word {
        "K" => args.push(KEYS.choose(rng).map_or(Vec::new(), |key| key.to_vec())),
        "V" => args.push(VALUES.choose(rng).map_or(Vec::new(), |value| value.to_vec())),
        "T" => args.push(one(&AMOUNTS, rng)),
        "E" => args.push(one(&["NX", "XX", "GT", "LT", "gt", "ON", "ASYNC"], rng)),
        "O" => {
            let option = one(&SET_OPTIONS, rng);
            let needs = matches!(option.as_slice(), b"PX" | b"EX" | b"PXAT" | b"EXAT");
            let compares = option.starts_with(b"IF");
            args.push(option);
            if needs {
                fill("T", rng, args);
            } else if compares {
                fill("V", rng, args);
            }
        }
        "SR" => args.push(RELEASE.into()),
        "SE" => args.push(EXTEND.into()),
        "HR" => args.push(b"ae3671744a5dbb24ea37ef607b8b10ac7856d43e".into()),
        "HE" => args.push(b"0BE193F9697B4b30826e1bc553c0064e0e04668c".into()),
        _ => args.push(word.into()),
    }
}
