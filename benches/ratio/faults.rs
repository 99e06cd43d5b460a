//! Locks while one of five nodes misbehaves, against the probe on the other four or on all five.

use std::time::Duration;

use redbolt::Client;

use crate::nodes::{Setup, WAITS, config, probe};
use crate::slices::{Bench, CYCLES, medians, percentile};
use crate::{Anything, Options};
use redbolt_benches::proxy::{Mode, Proxy};

/// The fifth node's behaviour, and whether the probe asks that node too.
/// The probe keeps no list of pending commands, so it can ask only a node that answers. Then the
/// proxy's share of the processors is the same on both sides.
const FAULTS: [(&str, Mode, bool); 7] = [
    ("none", Mode::Pass, false),
    ("none", Mode::Pass, true),
    ("hung", Mode::Hang, false),
    ("20 ms slow", SLOW, false),
    ("20 ms slow", SLOW, true),
    ("refusing", Mode::Refuse, false),
    ("flapping", Mode::Flap, false),
];

const SLOW: Mode = Mode::Delay(Duration::from_millis(20));

pub(crate) fn run(options: &Options) -> Anything {
    let Some(setup) = Setup::new(5)?.filter(Setup::is_tcp) else {
        println!("needs five nodes over TCP");
        return Ok(());
    };
    println!(
        "| fifth node | wait | probe on | acquire p50 | p50 of the probe | acquire p99 | p99 of the probe |"
    );
    println!("|---|---|---|---|---|---|---|");
    let Some((fifth, healthy)) = setup.addresses.split_last() else { return Ok(()) };
    for (name, mode, is_asked) in FAULTS {
        for (wait_name, wait) in WAITS {
            let proxy = Proxy::start(fifth)?;
            let mut addresses = healthy.to_vec();
            addresses.push(proxy.address());
            let client = Client::connect(config(&addresses, wait)?)?;
            let asked = if is_asked { &addresses } else { healthy };
            let mut bench = Bench::new((client, probe(asked, wait)?), CYCLES);
            proxy.set(mode);
            let pairs = bench.compare(options.slices)?;
            let p50 = medians(&pairs, |times| percentile(&times.acquire, 0.5));
            let p99 = medians(&pairs, |times| percentile(&times.acquire, 0.99));
            println!(
                "| {name} | {wait_name} | {} | {:.1} us | {:.3} | {:.1} us | {:.3} |",
                asked.len(),
                p50[1],
                p50[2],
                p99[1],
                p99[2]
            );
        }
    }
    Ok(())
}
