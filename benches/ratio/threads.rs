//! Cycles per second of many threads on one `Shared`, beside one thread that has as many under way in a batch.

use std::thread;
use std::time::Duration;

use redbolt::{Client, IdleStrategy, Shared, now};

use rustix::time::{ClockId, clock_gettime};

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
    println!(
        "| threads | release | cycles per second | batch | of the batch | CPU per cycle | batch |"
    );
    println!("|---|---|---|---|---|---|---|");
    let Some(setup) = Setup::new(5)? else { return Ok(()) };
    let client = Client::connect(config(&setup.addresses, IdleStrategy::Park)?)?;
    let shared = Shared::connect(config(&setup.addresses, IdleStrategy::Park)?)?;
    let mut beside = Beside { client, shared, threads: 1, waits: true, keys: Keys::new() };
    for (waits, release) in [(true, "`unlock`"), (false, "guard dropped")] {
        for threads in [1, 8, 64, 256] {
            (beside.threads, beside.waits) = (threads, waits);
            let pairs = alternate(options.slices, &mut beside, Beside::batch, Beside::threads)?;
            let [batch, ours, ratio] = medians(&pairs, |slice| slice.rate);
            let [cpu_batch, cpu, _] = medians(&pairs, |slice| slice.cpu_micros);
            println!(
                "| {threads} | {release} | {ours:.0} | {batch:.0} | {ratio:.3} | {cpu:.1} us | {cpu_batch:.1} us |"
            );
        }
    }
    Ok(())
}

struct Slice {
    /// Cycles per second.
    rate: f64,
    /// Of this process, all of its threads, per cycle.
    cpu_micros: f64,
}

/// Times so many cycles.
fn slice(cycles: usize, run: impl FnOnce() -> Anything) -> Anything<Slice> {
    let (begin, cpu) = (now(), cpu_time());
    run()?;
    let (elapsed, cpu) = (begin.until(now()), cpu_time() - cpu);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let cycles = cycles as f64;
    Ok(Slice { rate: cycles / elapsed.as_secs_f64(), cpu_micros: cpu.as_secs_f64() * 1e6 / cycles })
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

impl Beside {
    fn batch(&mut self) -> Anything<Slice> {
        slice(CYCLES, || window(&mut self.client, &mut self.keys, self.threads, CYCLES))
    }

    fn threads(&mut self) -> Anything<Slice> {
        let each = CYCLES / self.threads;
        let (shared, waits, keys) = (&self.shared, self.waits, &mut self.keys);
        let mut run = || {
            thread::scope(|scope| {
                let mut cycles = |_| {
                    let keys: Vec<[u8; 22]> = (0..each).map(|_| keys.next()).collect();
                    scope.spawn(move || keys.iter().all(|key| cycle(shared, key, waits)))
                };
                let all: Vec<_> = (0..self.threads).map(&mut cycles).collect();
                all.into_iter().all(|thread| thread.join().is_ok_and(|ended| ended))
            })
        };
        let run = || run().then_some(()).ok_or_else(|| "a lock was not won or not released".into());
        slice(each * self.threads, run)
    }
}

fn cycle(shared: &Shared, key: &[u8], waits: bool) -> bool {
    let Ok(guard) = shared.try_lock(key, TTL) else { return false };
    !waits || shared.unlock(guard).is_ok()
}
