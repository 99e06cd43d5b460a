//! The engine without sockets, one operation at a time, by criterion.
//!
//! `cargo bench --bench engine`; `-- --measurement-time 5` looks longer, and a word picks the
//! benchmarks whose names hold it.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use redbolt::LockOptions;
use redbolt::engine::Event;
use redbolt_benches::rig::Rig;

const TTL: Duration = Duration::from_secs(10);

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
    // The engine sent a release to the nodes that had not answered when the attempt was decided.
    for node in rig.engine.nodes_with_output() {
        let len = rig.engine.output(node).len();
        rig.engine.handle_sent(node, len);
        rig.engine.handle_bytes(node, b":0\r\n", rig.now);
    }
    matches!(event, Some(Event::Lock { result: Err(_), .. }))
}

/// A lock that the client extends once.
fn extension(rig: &mut Rig) -> bool {
    let key = rig.next_key();
    let begun = rig.engine.try_lock(&key, &LockOptions::new(TTL), rig.now);
    rig.send();
    rig.answer(b"+OK\r\n");
    let Some(Event::Lock { result: Ok(lease), .. }) = rig.engine.poll_event(rig.now) else {
        return false;
    };
    while rig.engine.poll_change().is_some() {}
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
    targets = engine
}
criterion_main!(benches);
