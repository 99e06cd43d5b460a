//! RESP without sockets, one frame at a time, by criterion.
//!
//! `cargo bench -p redbolt-benches --features codec --bench codec` takes about half a minute; a
//! word picks the benchmarks whose names contain it.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use redbolt::fuzzing::codec::{decode, decode_by_bytes, encode};

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

fn codec(criterion: &mut Criterion) {
    let mut out = Vec::with_capacity(256);
    let token = [b'a'; 40];
    criterion.bench_function("encode SET", |bencher| {
        bencher.iter(|| {
            out.clear();
            let args: [&[u8]; 6] =
                [b"SET", black_box(b"bench:0000000000000001"), &token, b"NX", b"PX", b"10000"];
            encode(&mut out, &args);
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
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = codec
}
criterion_main!(benches);
