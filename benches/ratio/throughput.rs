//! Cycles per second with many locks under way at once.

use redbolt::driver::Outcome;
use redbolt::now;

use crate::latency::add;
use crate::nodes::{Keys, Setup, WAITS, config, probe};
use crate::plot::{Line, Plot, Scale, save};
use crate::slices::{CYCLES, alternate, medians};
use crate::{Anything, Options, TTL};
use redbolt_benches::looped::Looped;
use redbolt_benches::probe::{Commands, Probe};

struct Windows {
    looped: Looped,
    probe: Probe,
    keys: Keys,
    commands: Commands,
    in_flight: usize,
    cycles: usize,
}

pub(crate) fn run(options: &Options) -> Anything {
    println!("| nodes | wait | in flight | cycles per second | probe | of the probe |");
    println!("|---|---|---|---|---|---|");
    let mut lines: Vec<Line> = Vec::new();
    for count in [3, 5] {
        let Some(setup) = Setup::new(count)? else { continue };
        for (name, wait) in WAITS {
            let config = config(&setup.addresses, wait)?.in_flight_max(1 << 14);
            let looped = Looped::connect(config, wait)?;
            let probe = probe(&setup.addresses, wait)?;
            let keys = Keys::new();
            let mut windows =
                Windows { looped, probe, keys, commands: Commands::new(), in_flight: 1, cycles: 1 };
            for in_flight in [1, 16, 64, 256, 1024] {
                windows.in_flight = in_flight;
                windows.cycles = CYCLES.max(2 * in_flight);
                let pairs =
                    alternate(options.slices, &mut windows, Windows::theirs, Windows::ours)?;
                let [theirs, ours, ratio] = medians(&pairs, |rate| *rate);
                println!(
                    "| {count} | {name} | {in_flight} | {ours:.0} | {theirs:.0} | {ratio:.3} |"
                );
                if count == 5 {
                    let x = in_flight as f64;
                    add(&mut lines, format!("probe, {name}"), x, theirs);
                    add(&mut lines, format!("redbolt, {name}"), x, ours);
                }
            }
        }
    }
    if let Some(dir) = &options.plots {
        let plot = Plot {
            title: "Cycles per second at five nodes",
            x: "locks under way",
            y: "acquire and release, per second",
            x_scale: Scale::Log,
            y_scale: Scale::Zero,
            lines,
        };
        save(&dir.join("throughput.svg"), "", &[plot])?;
    }
    Ok(())
}

impl Windows {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn theirs(&mut self) -> Anything<f64> {
        let begin = now();
        self.probe.window(&mut self.commands, self.in_flight, self.cycles)?;
        Ok(self.cycles as f64 / begin.until(now()).as_secs_f64())
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn ours(&mut self) -> Anything<f64> {
        let begin = now();
        window(&mut self.looped, &mut self.keys, self.in_flight, self.cycles)?;
        Ok(self.cycles as f64 / begin.until(now()).as_secs_f64())
    }
}

/// This many cycles of one thread, with this many under way at once.
pub(crate) fn window(
    looped: &mut Looped,
    keys: &mut Keys,
    in_flight: usize,
    cycles: usize,
) -> Anything {
    let (mut to_begin, mut to_end) = (cycles, cycles);
    for _ in 0..in_flight.min(cycles) {
        acquire(looped, keys, &mut to_begin)?;
    }
    while to_end > 0 {
        let done = match looped.driver.completion() {
            Some(done) => done,
            None => {
                looped.driver.flush();
                looped.wait_completion()?
            }
        };
        match done.result {
            Outcome::Lock(lease) => {
                looped.driver.unlock(lease?)?;
            }
            Outcome::Unlock(_) => {
                to_end -= 1;
                acquire(looped, keys, &mut to_begin)?;
            }
            Outcome::Extend(_) | Outcome::Adopt(_) | _ => {}
        }
    }
    Ok(())
}

fn acquire(looped: &mut Looped, keys: &mut Keys, to_begin: &mut usize) -> Anything {
    if *to_begin > 0 {
        *to_begin -= 1;
        looped.driver.try_lock(keys.next(), TTL)?;
    }
    Ok(())
}
