//! Cycles per second of many threads on one `Shared`, beside one thread that has as many under way in a batch.

use std::thread;

use redbolt::{Client, IdleStrategy, Shared, now};

use crate::nodes::{Keys, Setup, config};
use crate::slices::{alternate, medians};
use crate::throughput::window;
use crate::{Anything, Options, TTL};

/// Of one slice, over all threads.
const CYCLES: usize = 12_800;

struct Beside {
    client: Client,
    shared: Shared,
    threads: usize,
    /// Whether a caller waits for the end of its release.
    waits: bool,
    keys: Keys,
}

pub(crate) fn run(options: &Options) -> Anything {
    println!("| threads | release | cycles per second | batch | of the batch |");
    println!("|---|---|---|---|---|");
    let Some(setup) = Setup::new(5)? else { return Ok(()) };
    let client = Client::connect(config(&setup.addresses, IdleStrategy::Park)?)?;
    let shared = Shared::connect(config(&setup.addresses, IdleStrategy::Park)?)?;
    let mut beside = Beside { client, shared, threads: 1, waits: true, keys: Keys::new() };
    for (waits, release) in [(true, "`unlock`"), (false, "guard dropped")] {
        for threads in [1, 8, 64, 256] {
            (beside.threads, beside.waits) = (threads, waits);
            let pairs = alternate(options.slices, &mut beside, Beside::batch, Beside::threads)?;
            let [batch, ours, ratio] = medians(&pairs, |rate| *rate);
            println!("| {threads} | {release} | {ours:.0} | {batch:.0} | {ratio:.3} |");
        }
    }
    Ok(())
}

impl Beside {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn batch(&mut self) -> Anything<f64> {
        let begin = now();
        window(&mut self.client, &mut self.keys, self.threads, CYCLES)?;
        Ok(CYCLES as f64 / begin.until(now()).as_secs_f64())
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn threads(&mut self) -> Anything<f64> {
        let each = CYCLES / self.threads;
        let begin = now();
        let (shared, waits, keys) = (&self.shared, self.waits, &mut self.keys);
        let all_ended = thread::scope(|scope| {
            let mut cycles = |_| {
                let keys: Vec<[u8; 22]> = (0..each).map(|_| keys.next()).collect();
                scope.spawn(move || keys.iter().all(|key| cycle(shared, key, waits)))
            };
            let all: Vec<_> = (0..self.threads).map(&mut cycles).collect();
            all.into_iter().all(|thread| thread.join().is_ok_and(|ended| ended))
        });
        if !all_ended {
            return Err("a lock was not won or not released".into());
        }
        Ok((each * self.threads) as f64 / begin.until(now()).as_secs_f64())
    }
}

fn cycle(shared: &Shared, key: &[u8], waits: bool) -> bool {
    let Ok(guard) = shared.try_lock(key, TTL) else { return false };
    !waits || shared.unlock(guard).is_ok()
}
