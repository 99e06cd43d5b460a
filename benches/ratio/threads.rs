//! Cycles per second of many threads on one `Client`. Beside them: one thread whose driver has as
//! many under way, and threads that only sleep and are woken as often.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use redbolt::{Client, IdleStrategy, now};
use redbolt_benches::looped::Looped;

use rustix::time::{ClockId, clock_gettime};

use crate::nodes::{Keys, Setup, config};
use crate::slices::{alternate, medians};
use crate::throughput::window;
use crate::{Anything, Options, TTL};

/// The cycles of each caller in one slice, and the most cycles of all callers together.
const EACH: usize = 200;
const CYCLES: usize = 12_800;

struct Beside {
    looped: Looped,
    client: Client,
    callers: Callers,
    /// How many callers there are.
    count: usize,
    /// Whether a caller waits for the end of its release.
    waits: bool,
    keys: Keys,
}

#[derive(Clone, Copy)]
enum Callers {
    Threads,
    /// The callers are tasks of one thread.
    Tasks,
}

pub(crate) fn run(options: &Options) -> Anything {
    println!(
        "| callers | release | cycles per second | driver | of the driver | CPU per cycle | CPU of the driver | sleeps alone |"
    );
    println!("|{}", "---|".repeat(8));
    let Some(setup) = Setup::new(5)? else { return Ok(()) };
    let looped =
        Looped::connect(config(&setup.addresses, IdleStrategy::Park)?, IdleStrategy::Park)?;
    let client = Client::connect(config(&setup.addresses, IdleStrategy::Park)?)?;
    let (callers, keys) = (Callers::Threads, Keys::new());
    let mut beside = Beside { looped, client, callers, count: 1, waits: true, keys };
    for (callers, name) in [(Callers::Threads, "threads"), (Callers::Tasks, "tasks")] {
        for (waits, release) in [(true, "`unlock`"), (false, "guard dropped")] {
            for count in [1, 8, 64, 256] {
                (beside.callers, beside.count, beside.waits) = (callers, count, waits);
                let pairs = alternate(options.slices, &mut beside, Beside::loops, Beside::calls)?;
                let [theirs, ours, ratio] = medians(&pairs, |slice| slice.rate);
                let [cpu_theirs, cpu, _] = medians(&pairs, |slice| slice.cpu_micros);
                let sleeps = match callers {
                    Callers::Threads => format!("{:.1} us", sleeps(count, waits)?.cpu_micros),
                    Callers::Tasks => "-".to_owned(),
                };
                println!(
                    "| {count} {name} | {release} | {ours:.0} | {theirs:.0} | {ratio:.3} | {cpu:.1} us | \
                     {cpu_theirs:.1} us | {sleeps} |"
                );
            }
        }
    }
    Ok(())
}

struct Slice {
    /// Cycles per second.
    rate: f64,
    /// Processor time of this process, with all of its threads, per cycle.
    cpu_micros: f64,
}

/// Measures this many cycles.
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
    fn cycles(&self) -> usize {
        CYCLES.min(EACH * self.count)
    }

    fn loops(&mut self) -> Anything<Slice> {
        let cycles = self.cycles();
        slice(cycles, || window(&mut self.looped, &mut self.keys, self.count, cycles))
    }

    fn calls(&mut self) -> Anything<Slice> {
        let each = self.cycles() / self.count;
        let keys: Vec<Vec<[u8; 22]>> =
            (0..self.count).map(|_| (0..each).map(|_| self.keys.next()).collect()).collect();
        let (client, waits) = (&self.client, self.waits);
        slice(each * self.count, || {
            let all_ended = match self.callers {
                Callers::Threads => threads(client, keys, waits),
                Callers::Tasks => tasks(client, keys, waits)?,
            };
            all_ended.then_some(()).ok_or_else(|| "a lock was not won or not released".into())
        })
    }
}

fn threads(client: &Client, keys: Vec<Vec<[u8; 22]>>, waits: bool) -> bool {
    let cycle = |key: &[u8; 22]| {
        let Ok(guard) = client.try_lock(key, TTL).wait() else { return false };
        !waits || guard.unlock().wait().is_ok()
    };
    thread::scope(|scope| {
        let all: Vec<_> =
            keys.into_iter().map(|keys| scope.spawn(move || keys.iter().all(cycle))).collect();
        all.into_iter().all(|thread| thread.join().is_ok_and(|ended| ended))
    })
}

fn tasks(client: &Client, keys: Vec<Vec<[u8; 22]>>, waits: bool) -> Anything<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks = keys.into_iter().map(|keys| {
        let client = client.clone();
        runtime.spawn(async move {
            for key in keys {
                let Ok(guard) = client.try_lock(key, TTL).await else { return false };
                if waits && guard.unlock().await.is_err() {
                    return false;
                }
            }
            true
        })
    });
    let tasks: Vec<_> = tasks.collect();
    Ok(runtime.block_on(async {
        let mut all_ended = true;
        for task in tasks {
            all_ended &= task.await.unwrap_or(false);
        }
        all_ended
    }))
}

/// As many threads that sleep as often: each asks one thread, which wakes all threads that have
/// asked.
fn sleeps(count: usize, waits: bool) -> Anything<Slice> {
    let each = CYCLES / count;
    let (asked, is_over) = (Mutex::new(Vec::<(Thread, usize)>::new()), AtomicBool::new(false));
    let answered: Vec<_> = (0..count).map(|_| AtomicBool::new(false)).collect();
    let take = || std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
    slice(each * count, || {
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let all = take();
                    if all.is_empty() {
                        thread::park();
                    }
                    for (thread, place) in all {
                        if let Some(answered) = answered.get(place) {
                            answered.store(true, Ordering::Release);
                        }
                        thread.unpark();
                    }
                }
            });
            let server = server.thread().clone();
            let ask = |place: usize| {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.push((thread::current(), place));
                let is_first = asked.len() == 1;
                drop(asked);
                if is_first {
                    server.unpark();
                }
            };
            thread::scope(|scope| {
                for (place, answered) in answered.iter().enumerate() {
                    let ask = &ask;
                    scope.spawn(move || {
                        for _ in 0..each * if waits { 2 } else { 1 } {
                            ask(place);
                            while !answered.swap(false, Ordering::Acquire) {
                                thread::park();
                            }
                        }
                    });
                }
            });
            is_over.store(true, Ordering::Release);
            server.unpark();
        });
        Ok(())
    })
}
