//! Redbolt beside other clients: all run on the same servers, in turn, in the same run.
//!
//! `peer-runner --nodes HOST:PORT,.. --pids PID,.. --bin DIR --log DIR [--perf FILE]
//! [--setups FILE] [--csv FILE] [--origin TEXT] [--runs N] [--rounds N] [--beside] [NAME ..]`; see `benches/peers/run`, which starts it.

mod beside;
mod measure;
mod program;
mod record;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::thread;

use redbolt::{Client, Config, RestartGuard};
use rustix::process::Pid;

use crate::measure::{FAULTY, Row};
use crate::program::Program;
use crate::record::Record;
use crate::table::Setup;
use redbolt_benches::proxy::Proxy;

pub(crate) type Anything<T = ()> = Result<T, Box<dyn Error>>;

const NAMES: [&str; 12] = [
    "redbolt",
    "redbolt-c",
    "redsync-redigo",
    "redsync-goredis",
    "redisson",
    "node-redlock",
    "pottery",
    "redlock-py",
    "rslock",
    "redlock-rs",
    "rueidislock",
    "valkeylock",
];

/// The options of the command line.
#[derive(Default)]
struct Options {
    nodes: Vec<String>,
    pids: Vec<i32>,
    bin: PathBuf,
    log: PathBuf,
    /// The files for the tables of the figures, and for the one of the set-ups.
    perf: Option<PathBuf>,
    setups: Option<PathBuf>,
    csv: Option<PathBuf>,
    /// What is measured and where, for the head of the CSV.
    origin: String,
    runs: usize,
    rounds: usize,
    /// Only two clients, which differ by little.
    is_beside: bool,
    names: Vec<&'static str>,
}

fn options() -> Anything<Options> {
    let mut options = Options { runs: 1, rounds: 6, ..Options::default() };
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
            "--setups" => options.setups = Some(value()?.into()),
            "--csv" => options.csv = Some(value()?.into()),
            "--origin" => options.origin = value()?,
            "--runs" => options.runs = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--beside" => options.is_beside = true,
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
    let connect = |nodes: &[String]| -> Anything<Client> {
        Ok(Client::connect(Config::new(nodes)?.restart_guard(RestartGuard::Off))?)
    };
    let redbolt = connect(&options.nodes)?;
    let redbolt_on_first = connect(&options.nodes[..1])?;
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
            let try_row = || -> Anything<Row> {
                let programs = [start(&nodes)?, start(&nodes)?, start(&slow)?];
                let mut row = Row::new(name, setting, programs)?;
                row.warm_up()?;
                row.check(if row.is_on_one_server() { &redbolt_on_first } else { &redbolt })?;
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

/// The hand-overs of the clients whose waiters sleep for long, all at once. One after the other,
/// they would take an hour. Processes that mostly sleep do not disturb each other.
fn side_by_side(rows: &mut Vec<Row>, left_out: &mut Vec<String>) {
    let failed: Vec<(&'static str, &'static str, String)> = thread::scope(|scope| {
        let measure = |row: &mut Row| {
            let error = row.measure_handover().err()?.to_string();
            Some((row.name, row.setting, error))
        };
        let sleepers = rows.iter_mut().filter(|row| row.sleeps());
        let calls: Vec<_> = sleepers.map(|row| scope.spawn(move || measure(row))).collect();
        calls.into_iter().filter_map(|call| call.join().ok().flatten()).collect()
    });
    for (name, setting, error) in failed {
        left_out.push(format!("{name} ({setting}): {error}"));
        rows.retain(|row| (row.name, row.setting) != (name, setting));
    }
}

/// One run: programs that are started for it, and so many rounds.
fn measure(options: &Options, proxy: &Proxy, server: Pid) -> Anything<(Vec<Row>, Vec<String>)> {
    let begin = redbolt::now();
    let (mut rows, mut left_out) = start(options, proxy)?;
    for round in 0..options.rounds {
        let seconds = begin.until(redbolt::now()).as_secs();
        eprintln!("round {} of {}, {} rows, {seconds} s", round + 1, options.rounds, rows.len());
        let (rows, left_out) = (&mut rows, &mut left_out);
        each(rows, left_out, round, |row| row.measure_latency(400));
        each(rows, left_out, round, |row| row.measure_cycles(500));
        each(rows, left_out, round, |row| match row.sleeps() {
            true => Ok(()),
            false => row.measure_handover(),
        });
        side_by_side(rows, left_out);
        each(rows, left_out, round, |row| row.measure_slow(proxy));
        // This scenario mostly waits, and its figures hardly vary, so every second round is enough.
        if round.is_multiple_of(2) {
            each(rows, left_out, round, |row| row.measure_hung(server));
        }
    }
    Ok((rows, left_out))
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
    if options.is_beside {
        return beside::run(&options, &proxy, load);
    }
    let (mut setups, mut records, mut left_out) = (Vec::<Setup>::new(), Vec::new(), Vec::new());
    for run in 1..=options.runs {
        eprintln!("run {run} of {}: starting and warming up", options.runs);
        let (rows, out) = measure(&options, &proxy, server)?;
        for row in &rows {
            records.extend(Record::of(run, row));
            if !setups.iter().any(|setup| setup.is_of(row)) {
                setups.push(Setup::of(row));
            }
        }
        let of_run = |why| if options.runs > 1 { format!("run {run}: {why}") } else { why };
        left_out.extend(out.into_iter().map(of_run));
    }
    let runs = if options.runs > 1 {
        format!("Medians of {} runs of {} rounds each", options.runs, options.rounds)
    } else {
        format!("{} rounds", options.rounds)
    };
    let about = format!(
        "{runs} on a machine with {} processors, load average {load} before; in {} s.",
        std::thread::available_parallelism()?,
        begin.until(redbolt::now()).as_secs(),
    );
    let text = table::markdown(&setups, &records, &left_out, &about);
    let how = table::set_up(&setups);
    println!("{text}\n{how}");
    if let Some(file) = &options.csv {
        let comments = [format!("{}, load {load}", options.origin), about];
        record::write(&records, &comments.each_ref().map(String::as_str), file)?;
    }
    if let Some(file) = &options.perf {
        table::put(&text, file)?;
    }
    if let Some(file) = &options.setups {
        table::put(&how, file)?;
    }
    Ok(())
}
