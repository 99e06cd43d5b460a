//! Redbolt beside other clients: all run on the same servers, in turn, in the same run.
//!
//! `peer-runner --nodes HOST:PORT,.. --pids PID,.. --bin DIR --log DIR [--perf FILE]
//! [--rounds N] [NAME ..]`; see `benches/peers/run`, which starts it.

mod measure;
mod program;
mod table;

use std::error::Error;
use std::path::PathBuf;

use redbolt::{Client, Config, RestartGuard};
use rustix::process::Pid;

use crate::measure::{FAULTY, Row};
use crate::program::Program;
use redbolt_benches::proxy::Proxy;

pub(crate) type Anything<T = ()> = Result<T, Box<dyn Error>>;

const NAMES: [&str; 9] = [
    "redbolt",
    "redsync-redigo",
    "redsync-goredis",
    "redisson",
    "node-redlock",
    "pottery",
    "redlock-py",
    "rslock",
    "redlock-rs",
];

/// The options of the command line.
#[derive(Default)]
struct Options {
    nodes: Vec<String>,
    pids: Vec<i32>,
    bin: PathBuf,
    log: PathBuf,
    perf: Option<PathBuf>,
    rounds: usize,
    names: Vec<&'static str>,
}

fn options() -> Anything<Options> {
    let mut options = Options { rounds: 6, ..Options::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--nodes" => options.nodes = value()?.split(',').map(str::to_owned).collect(),
            "--pids" => {
                options.pids = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--bin" => options.bin = value()?.into(),
            "--log" => options.log = value()?.into(),
            "--perf" => options.perf = Some(value()?.into()),
            "--rounds" => options.rounds = value()?.parse()?,
            name => {
                let known = NAMES.iter().find(|known| **known == name);
                options.names.push(known.ok_or_else(|| format!("no client {name}"))?);
            }
        }
    }
    if options.names.is_empty() {
        options.names.extend(NAMES);
    }
    Ok(options)
}

/// The programs of each client, warm, and the clients that were left out.
fn start(options: &Options, proxy: &Proxy) -> Anything<(Vec<Row>, Vec<String>)> {
    let nodes = options.nodes.join(",");
    let mut slow = options.nodes.clone();
    *slow.get_mut(FAULTY).ok_or("too few nodes")? = proxy.address();
    let slow = slow.join(",");
    let config = Config::new(&options.nodes)?.restart_guard(RestartGuard::Off);
    let mut redbolt = Client::connect(config)?;
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for &name in &options.names {
        let bin = options.bin.join(name);
        if !bin.exists() {
            // `benches/peers/build` wrote the reason.
            let why = std::fs::read_to_string(options.bin.join("../missing").join(name));
            left_out.push(format!("{name}: {}", why.as_deref().unwrap_or("not built").trim()));
            continue;
        }
        for setting in ["default", "tuned"] {
            let log = options.log.join(format!("{name}-{setting}"));
            let start = |nodes| Program::start(&bin, nodes, setting, &log);
            let mut try_row = || -> Anything<Row> {
                let programs = [start(&nodes)?, start(&nodes)?, start(&slow)?];
                let mut row = Row::new(name, setting, programs)?;
                row.warm_up()?;
                row.check(&mut redbolt)?;
                Ok(row)
            };
            // On a busy machine some programs do not get their connections in the time that they
            // allow.
            let row = try_row().or_else(|_| try_row()).or_else(|_| try_row());
            match row {
                Ok(row) => rows.push(row),
                Err(error) => left_out.push(format!("{name} ({setting}): {error}")),
            }
        }
    }
    Ok((rows, left_out))
}

/// Runs one scenario for all rows, in an order that changes; a row that fails is left out from then
/// on.
fn each(
    rows: &mut Vec<Row>,
    left_out: &mut Vec<String>,
    round: usize,
    mut measure: impl FnMut(&mut Row) -> Anything,
) {
    let count = rows.len();
    let mut failed = Vec::new();
    for index in 0..count {
        let turned = (index + round * 5) % count.max(1);
        let index = if round.is_multiple_of(2) { turned } else { count - 1 - turned };
        let Some(row) = rows.get_mut(index) else { continue };
        if let Err(error) = measure(row) {
            left_out.push(format!("{} ({}): {error}", row.name, row.setting));
            failed.push(index);
        }
    }
    failed.sort_unstable();
    for index in failed.into_iter().rev() {
        rows.remove(index);
    }
}

/// Random numbers of low quality, which suffice here (splitmix64).
fn random() -> impl FnMut() -> u64 {
    let mut state = redbolt::now().as_nanos();
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }
}

fn main() -> Anything {
    let options = options()?;
    let faulty = options.nodes.get(FAULTY).ok_or("too few nodes")?;
    let server = options.pids.get(FAULTY).and_then(|pid| Pid::from_raw(*pid));
    let server = server.ok_or("no process of that node")?;
    let proxy = Proxy::start(faulty)?;
    let begin = redbolt::now();
    // The load of other processes on the machine shows in every figure.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    eprintln!("starting and warming up");
    let (mut rows, mut left_out) = start(&options, &proxy)?;
    let mut random = random();
    for round in 0..options.rounds {
        let seconds = begin.until(redbolt::now()).as_secs();
        eprintln!("round {} of {}, {} rows, {seconds} s", round + 1, options.rounds, rows.len());
        each(&mut rows, &mut left_out, round, Row::measure_latency);
        each(&mut rows, &mut left_out, round, Row::measure_cycles);
        each(&mut rows, &mut left_out, round, |row| row.measure_handover(&mut random));
        each(&mut rows, &mut left_out, round, |row| row.measure_slow(&proxy));
        // This scenario mostly waits, and takes about the same time in each round.
        if round.is_multiple_of(2) {
            each(&mut rows, &mut left_out, round, |row| row.measure_hung(server));
        }
    }
    let about = format!(
        "{} rounds on a machine with {} processors, load average {load} before; in {} s.",
        options.rounds,
        std::thread::available_parallelism()?,
        begin.until(redbolt::now()).as_secs(),
    );
    let text = table::markdown(&rows, &left_out, &about);
    println!("{text}");
    if let Some(file) = &options.perf {
        table::put(&text, file)?;
    }
    Ok(())
}
