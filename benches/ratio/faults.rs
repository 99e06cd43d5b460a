//! Acquire while one of five nodes misbehaves, against the probe on the four that answer.

use std::time::Duration;

use redbolt::Client;

use crate::nodes::{Setup, WAITS, config, probe};
use crate::proxy::{Mode, Proxy};
use crate::slices::{Bench, CYCLES, medians, percentile};
use crate::{Anything, Options};

const FAULTS: [(&str, Mode); 5] = [
    ("none", Mode::Pass),
    ("hung", Mode::Hang),
    ("20 ms slow", Mode::Delay(Duration::from_millis(20))),
    ("refusing", Mode::Refuse),
    ("flapping", Mode::Flap),
];

pub(crate) fn run(options: &Options) -> Anything {
    let Some(setup) = Setup::new(5)?.filter(Setup::is_tcp) else {
        println!("needs five nodes over TCP");
        return Ok(());
    };
    println!(
        "| fifth node | wait | acquire p50 | of the probe on four | acquire p99 | of the probe on four |"
    );
    println!("|---|---|---|---|---|---|");
    let Some((fifth, healthy)) = setup.addresses.split_last() else { return Ok(()) };
    for (name, mode) in FAULTS {
        for (wait_name, wait) in WAITS {
            let proxy = Proxy::start(fifth)?;
            let mut addresses = healthy.to_vec();
            addresses.push(proxy.address());
            let client = Client::connect(config(&addresses, wait)?)?;
            let mut bench = Bench::new((client, probe(healthy, wait)?), CYCLES);
            proxy.set(mode);
            let pairs = bench.compare(options.slices)?;
            let p50 = medians(&pairs, |times| percentile(&times.acquire, 0.5));
            let p99 = medians(&pairs, |times| percentile(&times.acquire, 0.99));
            println!(
                "| {name} | {wait_name} | {:.1} us | {:.3} | {:.1} us | {:.3} |",
                p50[1], p50[2], p99[1], p99[2]
            );
        }
    }
    Ok(())
}
