//! One of the processes that count. Every other process lets its locks linger for a while where no
//! other waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::{Client, LockOptions};

use redbolt_rig::ms;

use super::{
    Duration, KEYS, RESERVE, SLOTTED, TTL, Work, config, counter, lock_key, read_counter,
    turns_file, write_counter, writing,
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
        if work == Work::Transfer.name() {
            turns += u64::from(transfer(&client, &dir, index, &mut random));
            write_counter(&turns_file(&dir, index), turns);
            continue;
        }
        if work == Work::Slots.name() {
            turns += share(&client, &dir, index, &mut random);
            write_counter(&turns_file(&dir, index), turns);
            continue;
        }
        let key = random.random_range(0..KEYS);
        let Ok(held) = client.lock(lock_key(key), options.clone()).wait() else { continue };
        let path = counter(&dir, key);
        let count = read_counter(&path);
        thread::sleep(ms(random.random_range(0..3)));
        let mark = writing(&dir, index);
        fs::write(&mark, "").expect("a writable directory");
        if held.remaining() > RESERVE {
            write_counter(&path, count + 1);
            turns += 1;
            write_counter(&turns_file(&dir, index), turns);
        }
        fs::remove_file(&mark).expect("a writable directory");
        if random.random_ratio(1, 4) {
            drop(held);
        } else {
            // A lease that is over by now counts for nothing any more, and its release reports that
            // here.
            let _ = held.unlock().wait();
        }
    }
    write_counter(&dir.join(format!("owed-{index}")), client.shutdown(SETTLED).wait() as u64);
}

/// Counts for the slot that it gets, or as a writer for all. Returns for how many it counted.
fn share(client: &Client, dir: &Path, index: usize, random: &mut StdRng) -> u64 {
    let options = LockOptions::new(TTL);
    let writes = random.random_ratio(1, 16);
    let options = if writes { options.write(KEYS) } else { options.read(KEYS) };
    let Ok(held) = client.lock(SLOTTED, options).wait() else { return 0 };
    let keys = held.slot().map_or(0..KEYS, |slot| slot..slot + 1);
    let counts: Vec<u64> = keys.clone().map(|key| read_counter(&counter(dir, key))).collect();
    thread::sleep(ms(random.random_range(0..3)));
    let mark = writing(dir, index);
    fs::write(&mark, "").expect("a writable directory");
    let is_counted = held.remaining() > RESERVE;
    if is_counted {
        for (key, count) in keys.clone().zip(counts) {
            write_counter(&counter(dir, key), count + 1);
        }
    }
    fs::remove_file(&mark).expect("a writable directory");
    if random.random_ratio(1, 4) {
        drop(held);
    } else {
        let _ = held.unlock().wait();
    }
    if is_counted { keys.len() as u64 } else { 0 }
}

/// Moves money from one account to another under the locks of both. Returns whether it was moved.
fn transfer(client: &Client, dir: &Path, index: usize, random: &mut StdRng) -> bool {
    let from = random.random_range(0..KEYS);
    let to = (from + random.random_range(1..KEYS)) % KEYS;
    let keys = [lock_key(from), lock_key(to)];
    let Ok(held) = client.lock_all(keys, TTL).wait() else { return false };
    let [from, to] = [counter(dir, from), counter(dir, to)];
    let [poorer, richer] = [read_counter(&from), read_counter(&to)];
    thread::sleep(ms(random.random_range(0..3)));
    let amount = random.random_range(0..=poorer.min(10));
    let mark = writing(dir, index);
    fs::write(&mark, "").expect("a writable directory");
    let is_moved = held.remaining() > RESERVE;
    if is_moved {
        write_counter(&from, poorer - amount);
        write_counter(&to, richer + amount);
    }
    fs::remove_file(&mark).expect("a writable directory");
    if random.random_ratio(1, 4) {
        drop(held);
    } else {
        let _ = held.unlock().wait();
    }
    is_moved
}
