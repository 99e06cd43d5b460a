//! Locks over sockets, on nodes in this process, by criterion: one caller, and 64 at once.
//!
//! `cargo bench --bench locks`. The nodes share the processors with the client: `benches/run` measures
//! on real servers.

use std::error::Error;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redbolt::{Client, Config, Guard, wait_all};
use redbolt_embedded::Nodes;

const TTL: Duration = Duration::from_secs(10);
const CALLERS: usize = 64;

fn locks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lock and unlock");
    for count in [3, 5] {
        let (nodes, client) = connect(count).expect("nodes in this process");
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{count} nodes, one caller"), |bencher| {
            bencher.iter(|| {
                let guard = client.try_lock("sku:42", TTL).wait().expect("it is free");
                guard.unlock().wait().expect("it is held")
            });
        });
        let keys: Vec<String> = (0..CALLERS).map(|nth| format!("sku:{nth}")).collect();
        group.throughput(Throughput::Elements(CALLERS as u64));
        group.bench_function(format!("{count} nodes, {CALLERS} callers"), |bencher| {
            bencher.iter(|| {
                let calls = keys.iter().map(|key| client.try_lock(key, TTL));
                let guards: Result<Vec<Guard>, _> = wait_all(calls).into_iter().collect();
                wait_all(guards.expect("they are free").into_iter().map(Guard::unlock)).len()
            });
        });
        drop(nodes);
    }
    group.finish();
}

fn connect(count: usize) -> Result<(Nodes, Client), Box<dyn Error>> {
    let nodes = Nodes::start(count)?;
    let client = Client::connect(Config::new(nodes.urls())?)?;
    Ok((nodes, client))
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .without_plots();
    targets = locks
}
criterion_main!(benches);
