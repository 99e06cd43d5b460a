//! One of the processes that count. When it takes single locks, every second process lets them
//! linger for a while where no other process waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::{Client, Guard, LockOptions};

use redbolt_rig::ms;

use super::{
    Duration, KEYS, RESERVE, SLOTTED, TTL, Work, config, counter, late_file, lock_key,
    read_counter, turns_file, write_counter, writing,
};

/// The limit for releases that are still owed at the end.
const SETTLED: Duration = Duration::from_secs(20);
const LINGER: Duration = ms(30);

#[test]
#[ignore = "the process that other tests start"]
fn one_of_the_processes_that_count() {
    let variable = |name: &str| std::env::var(format!("REDBOLT_CHAOS_{name}")).unwrap();
    let dir = PathBuf::from(variable("DIR"));
    let index: usize = variable("INDEX").parse().unwrap();
    let urls: Vec<String> = variable("NODES").split(',').map(str::to_owned).collect();
    let client =
        Client::open(config(&urls, variable("QUORUM").parse().unwrap())).expect("a client");
    let options = LockOptions::new(TTL);
    let options = if index.is_multiple_of(2) { options } else { options.linger(LINGER) };
    let mut random = StdRng::seed_from_u64(index as u64);
    let work = variable("WORK");
    let mut turns = 0;
    while !dir.join("stop").exists() {
        let pause = read_counter(&dir.join("pause"));
        if pause > 0 {
            write_counter(&dir.join(format!("paused-{index}")), pause);
            thread::sleep(ms(2));
            continue;
        }
        let turn = if work == Work::Transfer.name() {
            transfer(&client, &dir, &mut random)
        } else if work == Work::Slots.name() {
            share(&client, &dir, &mut random)
        } else {
            count(&client, &dir, &options, &mut random)
        };
        let Some((held, writes)) = turn else { continue };
        thread::sleep(ms(random.random_range(0..3)));
        let mark = writing(&dir, index);
        fs::write(&mark, "").expect("a writable directory");
        if held.remaining() > RESERVE {
            for (path, count) in &writes {
                write_counter(path, *count);
            }
            if !held.is_valid() {
                let late = late_file(&dir, index);
                write_counter(&late, read_counter(&late) + 1);
            }
            turns += if work == Work::Transfer.name() { 1 } else { writes.len() as u64 };
            write_counter(&turns_file(&dir, index), turns);
        }
        fs::remove_file(&mark).expect("a writable directory");
        if random.random_ratio(1, 4) {
            drop(held);
        } else {
            // If the lease is over by now, `unlock` returns an error, which changes nothing here.
            let _ = held.unlock().wait();
        }
    }
    write_counter(&dir.join(format!("owed-{index}")), client.shutdown(SETTLED).wait() as u64);
}

/// What a process holds, and what it may write while that is valid.
type Turn = Option<(Guard, Vec<(PathBuf, u64)>)>;

/// Counts under one lock.
fn count(client: &Client, dir: &Path, options: &LockOptions, random: &mut StdRng) -> Turn {
    let key = random.random_range(0..KEYS);
    let held = client.lock(lock_key(key), options.clone()).wait().ok()?;
    Some((held, vec![one_more(dir, key)]))
}

/// Counts for the slot that it gets, or as a writer for all.
fn share(client: &Client, dir: &Path, random: &mut StdRng) -> Turn {
    let options = LockOptions::new(TTL);
    let writes = random.random_ratio(1, 16);
    let options = if writes { options.write(KEYS) } else { options.read(KEYS) };
    let held = client.lock(SLOTTED, options).wait().ok()?;
    let keys = held.slot().map_or(0..KEYS, |slot| slot..slot + 1);
    let writes = keys.map(|key| one_more(dir, key)).collect();
    Some((held, writes))
}

/// Moves money from one account to another under the locks of both.
fn transfer(client: &Client, dir: &Path, random: &mut StdRng) -> Turn {
    let from = random.random_range(0..KEYS);
    let to = (from + random.random_range(1..KEYS)) % KEYS;
    let held = client.lock_all([lock_key(from), lock_key(to)], TTL).wait().ok()?;
    let [from, to] = [counter(dir, from), counter(dir, to)];
    let [poorer, richer] = [read_counter(&from), read_counter(&to)];
    let amount = random.random_range(0..=poorer.min(10));
    Some((held, vec![(from, poorer - amount), (to, richer + amount)]))
}

fn one_more(dir: &Path, key: usize) -> (PathBuf, u64) {
    let path = counter(dir, key);
    let count = read_counter(&path);
    (path, count + 1)
}
