//! Codec and engine without sockets, one operation at a time, by criterion.
//!
//! `cargo bench -p redbolt-benches --bench micro` takes about a minute; `-- --measurement-time 5`
//! looks longer, and a word picks the benchmarks whose names hold it.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use redbolt::LockOptions;
use redbolt::engine::Event;
use redbolt::resp::encode::append_command;
use redbolt::resp::{Decoder, Limits, quick};
use redbolt_benches::rig::Rig;

const TTL: Duration = Duration::from_secs(10);

/// What nodes answer, by shape.
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
            append_command(&mut out, &args);
            black_box(out.len())
        });
    });
    for (name, reply) in REPLIES {
        criterion.bench_function(&format!("decode {name}, whole"), |bencher| {
            bencher.iter(|| {
                if let Some((_, len)) = quick(black_box(reply)) {
                    return len;
                }
                let mut decoder = Decoder::new(Limits::default());
                decoder.frame(black_box(reply)).ok().flatten().map_or(0, |frame| frame.len())
            });
        });
        criterion.bench_function(&format!("decode {name}, a byte at a time"), |bencher| {
            bencher.iter(|| {
                let mut decoder = Decoder::new(Limits::default());
                let mut frames = 0;
                for len in 1..=reply.len() {
                    let part = reply.get(..len).unwrap_or_default();
                    frames += usize::from(matches!(decoder.frame(black_box(part)), Ok(Some(_))));
                }
                frames
            });
        });
    }
}

fn engine(criterion: &mut Criterion) {
    for nodes in [1, 3, 5, 7] {
        let Ok(mut rig) = Rig::new(nodes, 16) else { continue };
        criterion.bench_function(&format!("engine cycle, {nodes} nodes"), |bencher| {
            bencher.iter(|| rig.cycle().is_ok());
        });
        criterion.bench_function(&format!("engine conflict, {nodes} nodes"), |bencher| {
            bencher.iter(|| conflict(&mut rig));
        });
        criterion.bench_function(&format!("engine extension, {nodes} nodes"), |bencher| {
            bencher.iter(|| extension(&mut rig));
        });
    }
}

/// An attempt that every node denies.
fn conflict(rig: &mut Rig) -> bool {
    let key = rig.next_key();
    if rig.engine.try_lock(&key, &LockOptions::new(TTL), rig.now).is_err() {
        return false;
    }
    rig.send();
    rig.answer(b"_\r\n");
    let event = rig.engine.poll_event(rig.now);
    // Those that had not answered as it was decided were sent a release behind it.
    for node in rig.engine.nodes_with_output() {
        let len = rig.engine.output(node).len();
        rig.engine.handle_sent(node, len);
        rig.engine.handle_bytes(node, b":0\r\n", rig.now);
    }
    matches!(event, Some(Event::Lock { result: Err(_), .. }))
}

/// A lock that is extended once.
fn extension(rig: &mut Rig) -> bool {
    let key = rig.next_key();
    let begun = rig.engine.try_lock(&key, &LockOptions::new(TTL), rig.now);
    rig.send();
    rig.answer(b"+OK\r\n");
    let Some(Event::Lock { result: Ok(lease), .. }) = rig.engine.poll_event(rig.now) else {
        return false;
    };
    while rig.engine.poll_late_vote().is_some() {}
    let extended = rig.engine.extend(lease, TTL, rig.now);
    rig.send();
    rig.answer(b"+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    rig.engine.release(lease, rig.now);
    rig.send();
    rig.answer(b":1\r\n");
    begun.is_ok() && extended.is_ok() && matches!(event, Some(Event::Extend { result: Ok(()), .. }))
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = codec, engine
}
criterion_main!(benches);
