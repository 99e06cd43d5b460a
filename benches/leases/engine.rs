//! The engine alone: its costs beside many leases, many timers, and many debts.

use std::time::Duration;

use redbolt::engine::{Event, LeaseId};
use redbolt::{Cause, LockOptions, Retry, now};

use crate::Anything;
use redbolt_benches::rig::{Rig, TTL};

/// Operations that are answered together.
const BATCH: usize = 1_000;
const CYCLES: u32 = 100_000;
const NODES: usize = 5;

/// A cycle beside so many leases.
pub(crate) fn beside_leases(counts: &[usize]) -> Anything {
    println!("| leases held | a cycle |\n|---|---|");
    let mut rig = Rig::new(NODES, BATCH)?;
    let mut held = 0;
    for &count in counts {
        while held < count {
            let batch = BATCH.min(count - held);
            hold(&mut rig, batch)?;
            held += batch;
        }
        let nanos = cycles(&mut rig)?;
        println!("| {count} | {nanos:.0} ns |");
    }
    println!();
    Ok(())
}

/// So many timers of retries, coming due over a second of the engine's time.
pub(crate) fn timers(counts: &[usize]) -> Anything {
    println!("| retries waiting | each: set, due, tried again |\n|---|---|");
    for &count in counts.iter().filter(|count| **count > 0) {
        let nanos = retries(count)?;
        println!("| {count} | {nanos:.0} ns |");
    }
    println!();
    Ok(())
}

fn retries(count: usize) -> Anything<f64> {
    let mut rig = Rig::new(NODES, count.max(BATCH))?;
    let second = Duration::from_secs(1);
    let acquire = LockOptions::new(TTL)
        .direct_wake(false)
        .retry(Retry::every(second, second).timeout(second * 2));
    let denied = b"_\r\n".repeat(BATCH);
    let begin = now();
    let mut waiting = 0;
    while waiting < count {
        let batch = BATCH.min(count - waiting);
        for _ in 0..batch {
            let key = rig.next_key();
            rig.engine.try_lock(&key, &acquire, rig.now)?;
        }
        rig.send();
        rig.answer(denied.get(..3 * batch).unwrap_or_default());
        waiting += batch;
    }
    let mut ended = 0;
    // About fifty come due in each pass.
    let pass = second.mul_f64(50.0 / count.max(50) as f64);
    while ended < count {
        rig.now = rig.now + pass;
        rig.engine.handle_timeout(rig.now);
        // Each retry is one more SET to each node.
        let first = rig.nodes.first().copied().ok_or("no node")?;
        let written = commands(rig.engine.output(first));
        rig.send();
        rig.answer(&b"_\r\n".repeat(written));
        while let Some(event) = rig.engine.poll_event(rig.now) {
            ended += usize::from(matches!(event, Event::Lock { result: Err(_), .. }));
        }
    }
    Ok(begin.until(now()).as_nanos() as f64 / count as f64)
}

/// A node is lost, and the client owes it every release, up to the bound and beyond.
pub(crate) fn debts() -> Anything {
    const DEBTS: usize = 65_536;
    println!("| one of five nodes | figure |\n|---|---|");
    let mut rig = Rig::new(NODES, BATCH)?;
    println!("| answers: a cycle | {:.0} ns |", cycles(&mut rig)?);
    let mut leases = Vec::new();
    while leases.len() < 2 * DEBTS {
        leases.extend(hold(&mut rig, BATCH)?);
    }
    let lost = rig.nodes.pop().ok_or("no node")?;
    rig.engine.handle_lost(lost, Cause::Closed, rig.now);
    println!("| is lost: a cycle | {:.0} ns |", cycles(&mut rig)?);
    for (name, share) in
        [("is lost: a release, the first 65,536", DEBTS), ("is lost: one beyond them", DEBTS)]
    {
        let part: Vec<_> = leases.drain(..share).collect();
        let begin = now();
        for batch in part.chunks(BATCH) {
            for &lease in batch {
                rig.engine.release(lease, rig.now);
            }
            rig.send();
            rig.answer(&b":1\r\n".repeat(batch.len()));
        }
        println!("| {name} | {:.0} ns |", begin.until(now()).as_nanos() as f64 / share as f64);
    }
    let owed = rig.engine.nodes(rig.now).last().map_or(0, |node| node.debts);
    println!("| is lost and owed {owed}: a cycle | {:.0} ns |", cycles(&mut rig)?);

    rig.now = rig.now + Duration::from_secs(2);
    let begin = now();
    rig.engine.handle_timeout(rig.now);
    while rig.engine.poll_connection().is_some() {}
    rig.greet(lost);
    let mut longest = Duration::ZERO;
    loop {
        let pass = now();
        let bytes = rig.engine.output(lost);
        let (commands, len) = (commands(bytes), bytes.len());
        rig.engine.handle_sent(lost, len);
        if commands == 0 {
            break;
        }
        rig.engine.handle_bytes(lost, &b":1\r\n".repeat(commands), rig.now);
        rig.engine.handle_timeout(rig.now);
        longest = longest.max(pass.until(now()));
    }
    let nanos = begin.until(now()).as_nanos() as f64 / owed.max(1) as f64;
    let left = rig.engine.nodes(rig.now).last().map_or(0, |node| node.debts);
    println!("| is back: a debt written and answered ({left} left) | {nanos:.0} ns |");
    println!("| is back: the longest pass | {} us |\n", longest.as_micros());
    Ok(())
}

/// How many commands the bytes hold: each names one key of 22 bytes.
fn commands(bytes: &[u8]) -> usize {
    bytes.windows(5).filter(|part| part == b"$22\r\n").count()
}

/// Wins this many locks at once.
fn hold(rig: &mut Rig, count: usize) -> Anything<Vec<LeaseId>> {
    for _ in 0..count {
        let key = rig.next_key();
        rig.engine.try_lock(&key, &LockOptions::new(TTL), rig.now)?;
    }
    rig.send();
    rig.answer(&b"+OK\r\n".repeat(count));
    let mut leases = Vec::with_capacity(count);
    while let Some(event) = rig.engine.poll_event(rig.now) {
        if let Event::Lock { result, .. } = event {
            leases.push(result?);
        }
    }
    while rig.engine.poll_change().is_some() {}
    Ok(leases)
}

fn cycles(rig: &mut Rig) -> Anything<f64> {
    let begin = now();
    for _ in 0..CYCLES {
        rig.cycle()?;
    }
    Ok(begin.until(now()).as_nanos() as f64 / f64::from(CYCLES))
}
