//! RESP without sockets, one frame at a time, by criterion.
//!
//! `cargo bench --bench resp`; a word picks the benchmarks whose names hold it.

// The codec is no public name, and stands on nothing else of the crate.
#[path = "../src/resp/mod.rs"]
#[expect(dead_code, unused_imports, reason = "a benchmark calls a part of it")]
mod resp;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

use resp::encode::append_command;
use resp::{Decoder, Limits, quick};

/// The length of the frame at the start of `input`, read in one piece; 0 if there is none.
fn decode(input: &[u8]) -> usize {
    if let Some((_, len)) = quick(input) {
        return len;
    }
    Decoder::new(Limits::default()).frame(input).ok().flatten().map_or(0, |frame| frame.len())
}

/// How many frames the decoder finds if `input` arrives byte by byte: 0 or 1.
fn decode_by_bytes(input: &[u8]) -> usize {
    let mut decoder = Decoder::new(Limits::default());
    let parts = (1..=input.len()).map(|len| input.get(..len).unwrap_or_default());
    parts.filter(|part| matches!(decoder.frame(part), Ok(Some(_)))).count()
}

/// Answers of nodes, by shape.
const REPLIES: [(&str, &[u8]); 9] = [
    ("ok", b"+OK\r\n"),
    ("null", b"_\r\n"),
    ("null of RESP2", b"$-1\r\n"),
    ("integer", b":1\r\n"),
    ("large integer", b":1234567890123\r\n"),
    ("error", b"-NOSCRIPT No matching script. Please use EVAL.\r\n"),
    ("bulk", b"$40\r\n00112233445566778899aabbccddeeff00112233\r\n"),
    ("array", b"*2\r\n$1\r\n1\r\n+QUEUED\r\n"),
    (
        "map",
        b"%4\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n+modules\r\n*0\r\n",
    ),
];

fn frames(criterion: &mut Criterion) {
    let mut out = Vec::with_capacity(256);
    let token = [b'a'; 40];
    criterion.bench_function("encode SET", |bencher| {
        bencher.iter(|| {
            out.clear();
            let args: [&[u8]; 6] =
                [b"SET", black_box(b"bench:0000000000000001"), &token, b"NX", b"PX", b"10000"];
            append_command(&mut out, &args);
            black_box(out.len())
        });
    });
    for (name, reply) in REPLIES {
        criterion.bench_function(&format!("decode {name}, whole"), |bencher| {
            bencher.iter(|| decode(black_box(reply)));
        });
        criterion.bench_function(&format!("decode {name}, a byte at a time"), |bencher| {
            bencher.iter(|| decode_by_bytes(black_box(reply)));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .without_plots();
    targets = frames
}
criterion_main!(benches);
