//! Any input of clients to an embedded node.

use std::time::Duration;

use super::source::Source;
use crate::resp::{Decoder, Limits};
use redbolt_embedded::Flavor;
use redbolt_embedded::Instant;
use redbolt_embedded::model::{Condition, Life, Memory, Progress, Server, ServerOptions, Session};

/// Far more than the model writes in one go; one of its aggregates may be nested three deep.
const LIMITS: Limits = Limits { frame_len_max: 64 << 20, depth_max: 8 };

/// The words of the model's commands, to save the fuzzer the guessing.
const WORDS: [&[u8]; 39] = [
    b"HELLO",
    b"2",
    b"3",
    b"AUTH",
    b"SETNAME",
    b"SET",
    b"GET",
    b"DEL",
    b"NX",
    b"PX",
    b"IFEQ",
    b"DELIFEQ",
    b"DELEX",
    b"PTTL",
    b"INFO",
    b"server",
    b"CONFIG",
    b"maxmemory-policy",
    b"CLIENT",
    b"EVAL",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"PUBLISH",
    b"PING",
    b"SELECT",
    b"FLUSHALL",
    b"RESET",
    b"k",
    b"v",
    b"100",
    b"0",
    b"-1",
    b"1",
    b"RPUSH",
    b"TIME",
    b"QUIT",
    b"DBSIZE",
    b"ECHO",
    b"noeviction",
];

/// Requests of two clients, well made or not: every answer is RESP and comes whole.
pub fn embedded_input(input: &[u8]) {
    let mut source = Source::new(input);
    let mut options = ServerOptions::new(source.pick(&Flavor::ALL));
    if source.below(4) == 0 {
        options = options.password("v").user("k", "v");
    }
    let mut now = Instant::from_nanos(1_000_000_000);
    let life = |now, id| Life::new([id; 20], [id; 20], now, 1_700_000_000_000).port(7001);
    let mut server = Server::new(&options, life(now, 1));
    let mut sessions = [server.connect(), server.connect()];
    while !source.is_empty() {
        let which = source.below(2);
        match source.below(16) {
            0..10 => {
                let request = request(&mut source);
                run(&mut server, &mut sessions[which], &request, now);
            }
            10..12 => {
                let len = source.below(64);
                run(&mut server, &mut sessions[which], source.bytes(len), now);
            }
            12 => now = now + Duration::from_millis(source.u16().into()),
            13 => server.set_condition(condition(&mut source)),
            14 => {
                let gone = std::mem::replace(&mut sessions[which], server.connect());
                server.disconnect(gone);
            }
            _ => {
                let memory = source.pick(&[Memory::Lost, Memory::Kept]);
                server.restart(life(now, source.byte()), memory);
                sessions = [server.connect(), server.connect()];
            }
        }
        for delivery in server.deliveries() {
            frames(&delivery.bytes);
        }
    }
    server.key_count(now);
}

/// A request of known words and others, in a correct frame.
fn request(source: &mut Source<'_>) -> Vec<u8> {
    let count = source.below(7) + 1;
    let mut out = format!("*{count}\r\n").into_bytes();
    for _ in 0..count {
        let word = match source.byte() {
            word @ 0..192 => WORDS[usize::from(word) % WORDS.len()],
            len => source.bytes(usize::from(len) - 192),
        };
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn condition(source: &mut Source<'_>) -> Condition {
    let is = source.flag();
    match source.below(10) {
        0 => Condition::Replica(is),
        1 => Condition::MasterDown(is),
        2 => Condition::Promoted([source.byte(); 20]),
        3 => Condition::Loading(is),
        4 => Condition::OutOfMemory(is),
        5 => Condition::Misconf(is),
        6 => Condition::Cluster(is),
        7 => Condition::MaxmemoryPolicy("allkeys-lru".into()),
        8 => Condition::EvictedKeys(source.u64()),
        _ => {
            let denied = WORDS[source.below(WORDS.len())].to_ascii_lowercase();
            Condition::Denied(vec![String::from_utf8_lossy(&denied).into_owned()])
        }
    }
}

fn run(server: &mut Server, session: &mut Session, mut bytes: &[u8], now: Instant) {
    let mut out = Vec::new();
    loop {
        let progress = server.execute(session, bytes, now, &mut out);
        frames(&out);
        if progress == Progress::Close {
            let closed = std::mem::replace(session, server.connect());
            return server.disconnect(closed);
        }
        if progress != Progress::More {
            return;
        }
        assert!(!out.is_empty(), "more to write, and nothing written");
        (bytes, out) = (b"", Vec::new());
    }
}

/// Asserts that `bytes` are whole frames.
fn frames(mut bytes: &[u8]) {
    let mut decoder = Decoder::new(LIMITS);
    while !bytes.is_empty() {
        let shown = || bytes[..bytes.len().min(400)].escape_ascii();
        match decoder.frame(bytes) {
            Ok(Some(frame)) => bytes = &bytes[frame.len()..],
            Ok(None) => panic!("an answer in pieces: {}", shown()),
            Err(error) => panic!("{error}: {}", shown()),
        }
    }
}
