//! One cycle of the engine without sockets: acquire and release of a fresh 22-byte key on N nodes.
//!
//! `cargo run --profile ffi -p redbolt-benches --bin engine_cycle -- NODES CYCLES` runs that many.
//! The difference of two lengths under `valgrind --tool=callgrind`, divided by the difference of
//! cycles, is exact on any machine. The program prints the time per cycle. Without arguments it
//! measures 1, 3, 5 and 7 nodes.

use std::error::Error;

use redbolt::now;
use redbolt_benches::rig::Rig;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let counts = match numbers.next() {
        Some(nodes) => vec![nodes],
        None => vec![1, 3, 5, 7],
    };
    let cycles = numbers.next().unwrap_or(200_000);
    for nodes in counts {
        let mut rig = Rig::new(nodes, 16)?;
        let begin = now();
        for _ in 0..cycles {
            rig.cycle()?;
        }
        let time = begin.until(now()).as_nanos();
        println!("{nodes} nodes: {} ns a cycle", time / u128::try_from(cycles.max(1))?);
    }
    Ok(())
}
