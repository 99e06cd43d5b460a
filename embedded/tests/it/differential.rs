//! Embedded nodes answer byte for byte like the real servers whose flavor they have.
//!
//! Random command sequences from two connections run on a real server and on the model of the same
//! flavor. A failure prints its seed; `REDBOLT_SEED` begins with another one. Numbers that depend
//! on the moment (PTTL) or on the connection (ids) are blanked on both sides.

mod requests;

use std::time::Duration;

use redbolt_rig::{Kind, RealServer, kind_or_skip};

use self::requests::Requests;
use super::pair::{Pair, words};

#[test]
fn redis_7_0_and_its_model_answer_alike() {
    compare(Kind::Redis70);
}

#[test]
fn redis_8_0_and_its_model_answer_alike() {
    compare(Kind::Redis80);
}

#[test]
fn redis_8_6_and_its_model_answer_alike() {
    compare(Kind::Redis86);
}

#[test]
fn valkey_8_1_and_its_model_answer_alike() {
    compare(Kind::Valkey81);
}

#[test]
fn valkey_9_1_and_its_model_answer_alike() {
    compare(Kind::Valkey91);
}

fn compare(kind: Kind) {
    let Some(kind) = kind_or_skip(kind) else {
        return;
    };
    let server = RealServer::start(kind, &[]);
    let first = std::env::var("REDBOLT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + SEQUENCES {
        let mut pair = Pair::new(&server);
        pair.note(&format!("REDBOLT_SEED={seed}"));
        let mut requests = Requests::new(seed);
        pair.run(0, &[words(&["FLUSHALL"])]);
        if requests.chance(0.5) {
            pair.run(0, &[words(&["HELLO", "3"])]);
            pair.run(1, &[words(&["HELLO", "3"])]);
            // In RESP2 a subscribed connection could ask for little else.
            for connection in 0..requests.up_to(3) - 1 {
                pair.run(connection, &[words(&["SUBSCRIBE", "a"])]);
            }
        }
        for _ in 0..requests.up_to(30) {
            let connection = usize::from(requests.chance(0.3));
            let batch = requests.batch();
            pair.run(connection, &batch);
            if requests.chance(0.02) {
                pair.run(connection, &[requests.short_lived()]);
                // Time has to pass on the real server's clock; the test waits for no event.
                std::thread::sleep(Duration::from_millis(4));
            }
        }
        // The next sequence must not count these subscribers.
        for connection in [0, 1] {
            pair.run(connection, &[words(&["RESET"])]);
        }
    }
}

const SEQUENCES: u64 = 400;
