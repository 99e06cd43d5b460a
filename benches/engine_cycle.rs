//! One cycle of the engine without sockets: acquire and release of a fresh 22-byte key on N nodes.
//!
//! `cargo run --profile ffi -p redbolt-benches --bin engine_cycle -- NODES CYCLES` runs that many. With
//! `KEYS` behind that, a cycle takes so many keys at once, and with `KEYS VERSION` on nodes of that
//! version of Valkey: 9.0 has no `MSETEX`.
//! The difference of two lengths under `valgrind --tool=callgrind`, divided by the difference of
//! cycles, is exact on any machine. Without arguments it prints a time per cycle.

use std::error::Error;

use redbolt::now;
use redbolt_benches::rig::Rig;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| words.get(place).and_then(|word| word.parse::<usize>().ok());
    let counts = number(0).map_or_else(|| vec![1, 3, 5, 7], |nodes| vec![nodes]);
    let cycles = number(1).unwrap_or(200_000);
    let keys = number(2).unwrap_or(1);
    let by_sets = words.get(3).is_some_and(|version| version == "9.0");
    let granted = if by_sets { "+OK\r\n".repeat(keys) } else { ":1\r\n".to_owned() };
    let deleted = ":1\r\n".repeat(keys);
    for nodes in counts {
        let mut rig = Rig::of(nodes, 128, if by_sets { "9.0.0" } else { "9.1.2" })?;
        let begin = now();
        for _ in 0..cycles {
            if keys == 1 {
                rig.cycle()?;
            } else {
                rig.cycle_of_set(keys, granted.as_bytes(), deleted.as_bytes())?;
            }
        }
        let time = begin.until(now()).as_nanos();
        println!("{nodes} nodes: {} ns a cycle", time / u128::try_from(cycles.max(1))?);
    }
    Ok(())
}
