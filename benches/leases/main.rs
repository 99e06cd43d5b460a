//! The costs of a million leases: memory, and the operations beside them. Also a million timers
//! that come due, and a lost node with the most debts that it may have.
//!
//! `cargo bench -p redbolt-benches --bench leases -- [--leases N]`
//!
//! The engine's figures are without sockets, on five nodes. Memory and the client's latency are
//! measured on three nodes in this process, on the client's thread alone.

mod client;
mod engine;

use std::error::Error;

pub(crate) type Anything<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Anything {
    let mut leases = 1_000_000;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--leases" => leases = words.next().unwrap_or_default().parse()?,
            "--bench" => {}
            word => return Err(format!("unknown: {word}").into()),
        }
    }
    let counts: Vec<usize> = [0, 1_000, 10_000, 100_000]
        .into_iter()
        .filter(|count| *count < leases)
        .chain([leases])
        .collect();
    engine::beside_leases(&counts)?;
    engine::timers(&counts)?;
    engine::debts()?;
    client::memory(leases)
}
