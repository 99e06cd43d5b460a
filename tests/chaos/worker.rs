//! One of the processes that count. Every other one is a [`Client`]; the rest are [`Shared`] handles,
//! whose locks linger for a while where nobody else waits.

use std::fs;
use std::path::PathBuf;
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::{Client, Config, Lease, LockOptions, Shared, SharedGuard};

use redbolt_rig::ms;

use super::{
    Duration, KEYS, RESERVE, TTL, config, counter, lock_key, read_counter, turns_file,
    write_counter, writing,
};

/// For releases that are still owed at the end.
const SETTLED: Duration = Duration::from_secs(20);
const LINGER: Duration = ms(30);

enum Handle {
    Client(Box<Client>),
    Shared(Shared),
}

enum Held {
    Lease(Lease),
    Guard(SharedGuard),
}

impl Handle {
    fn open(config: Config, index: usize) -> Self {
        if index.is_multiple_of(2) {
            Self::Client(Box::new(Client::open(config).expect("a client")))
        } else {
            Self::Shared(Shared::open(config).expect("a handle"))
        }
    }

    fn lock(&mut self, key: &str) -> Option<Held> {
        match self {
            Self::Client(client) => client.lock(key, TTL).ok().map(Held::Lease),
            Self::Shared(shared) => {
                shared.lock(key, LockOptions::new(TTL).linger(LINGER)).ok().map(Held::Guard)
            }
        }
    }

    fn unlock(&mut self, held: Held) {
        // What is over by now counts for nothing any more, and says so here.
        match (self, held) {
            (Self::Client(client), Held::Lease(lease)) => drop(client.unlock(lease)),
            (Self::Shared(shared), Held::Guard(guard)) => drop(shared.unlock(guard)),
            _ => {}
        }
    }

    /// Sends what a paused worker still owes.
    fn rest(&mut self) {
        if let Self::Client(client) = self {
            client.wait_released(ms(20));
        }
    }

    /// How many releases are owed at the end, with all servers there.
    fn end(self) -> u64 {
        match self {
            Self::Shared(shared) => shared.shutdown(SETTLED) as u64,
            Self::Client(mut client) => client.shutdown(SETTLED) as u64,
        }
    }
}

impl Held {
    fn remaining(&self) -> Duration {
        match self {
            Self::Lease(lease) => lease.remaining(),
            Self::Guard(guard) => guard.remaining(),
        }
    }
}

#[test]
#[ignore = "the process that other tests start"]
fn one_of_the_processes_that_count() {
    let variable = |name: &str| std::env::var(format!("REDBOLT_CHAOS_{name}")).unwrap();
    let dir = PathBuf::from(variable("DIR"));
    let index: usize = variable("INDEX").parse().unwrap();
    let urls: Vec<String> = variable("NODES").split(',').map(str::to_owned).collect();
    let mut handle = Handle::open(config(&urls, variable("QUORUM").parse().unwrap()), index);
    let mut random = StdRng::seed_from_u64(index as u64);
    let mut turns = 0;
    while !dir.join("stop").exists() {
        let pause = read_counter(&dir.join("pause"));
        if pause > 0 {
            handle.rest();
            write_counter(&dir.join(format!("paused-{index}")), pause);
            thread::sleep(ms(2));
            continue;
        }
        let key = random.random_range(0..KEYS);
        let Some(held) = handle.lock(&lock_key(key)) else { continue };
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
            handle.unlock(held);
        }
    }
    write_counter(&dir.join(format!("owed-{index}")), handle.end());
}
