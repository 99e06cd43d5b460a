//! `redbolt lock`, and the parts that it shares with `extend` and `run`: its options, taking the
//! lock, and printing it.

use std::time::Duration;

use redbolt::inspect::NodeState;
use redbolt::{Lease, LockOptions, now};
use serde_json::json;

use crate::args::{Global, LockArgs};
use crate::exit::{Failure, NO_QUORUM, TAKEN};
use crate::holders;
use crate::names::names;
use crate::output::{add, argument, ms, say, short, shown, slots_of};
use crate::session::Session;
use crate::signals::ENDING;
use crate::token;
use crate::waiting::Waiting;

pub(crate) fn run(global: &Global, args: &LockArgs) -> Result<(), Failure> {
    let mut session = Session::open(global, &ENDING)?;
    let (keys, is_shared) = (names(&args.keys), args.slots.is_some());
    let options = options(args.ttl, args.fence);
    let options = match args.slots {
        Some(slots) => options.slots(slots.into()),
        None => options,
    };
    let result = take(&mut session, (&keys, is_shared), options, args.wait);
    let hint = |failure: Failure| if args.wait.is_some() { failure } else { failure.hint_wait() };
    let result = result.map_err(hint);
    let result = result.and_then(|lease| {
        session.gather_votes(&lease)?;
        // If printing or the detach fails, the drop of the lease releases the lock again.
        announce(&session, &lease, global.json)?;
        session.driver.detach(&lease)?;
        Ok(())
    });
    session.close();
    result
}

/// Takes the locks, all or none. The failure names the holder.
pub(crate) fn take(
    session: &mut Session,
    (keys, is_shared): (&[&[u8]], bool),
    options: LockOptions,
    wait: Option<Duration>,
) -> Result<Lease, Failure> {
    let waiting = wait.map(|wait| Waiting::start(&session.config, keys, is_shared, wait));
    let began = now();
    let taken = session.lock(keys, options, wait);
    drop(waiting);
    let waited = wait.map(|_| now() - began);
    taken.map_err(|failure| explain(session, failure, (keys, is_shared), waited))
}

/// The options with which a lock is taken.
pub(crate) const fn options(ttl: Duration, is_fenced: bool) -> LockOptions {
    let options = LockOptions::new(ttl);
    if is_fenced { options.fenced() } else { options }
}

/// Prints keys, token, validity and votes of a lease, and the fence of each key that has one.
pub(crate) fn announce(session: &Session, lease: &Lease, json: bool) -> Result<(), Failure> {
    let nodes = session.driver.nodes();
    let nodes = nodes.iter().filter(|node| node.state != NodeState::Unlisted).count();
    let (validity, votes) = (lease.remaining(), lease.votes().count());
    let keys: Vec<String> = lease.keys().map(shown).collect();
    let fences: Vec<u64> = lease.keys().filter_map(|key| lease.fence_of(key)).collect();
    let token = shown(&token::of(lease));
    if json {
        let mut object =
            json!({"token": token, "validity_ms": ms(validity), "votes": votes, "nodes": nodes});
        let names = match keys.as_slice() {
            [key] => json!({"key": key, "fence": fences.first(), "slot": lease.slot()}),
            keys => json!({"keys": keys, "fences": fences}),
        };
        add(&mut object, names);
        return Ok(say(object)?);
    }
    let mut lines: Vec<String> = keys.iter().map(|key| format!("key       {key}")).collect();
    lines.push(format!("token     {token}\nvalidity  {}", short(validity)));
    lines.push(format!("votes     {votes} of {nodes}"));
    lines.extend(fences.iter().map(|fence| format!("fence     {fence}")));
    lines.extend(lease.slot().map(|slot| format!("slot      {slot}")));
    Ok(say(lines.join("\n"))?)
}

/// Names the holder of a lock that is taken, as far as one round trip per key tells, and the time
/// waited.
fn explain(
    session: &mut Session,
    failure: Failure,
    (keys, is_shared): (&[&[u8]], bool),
    waited: Option<Duration>,
) -> Failure {
    if failure.code != TAKEN {
        return failure;
    }
    let told = |failure: Failure| match waited {
        Some(waited) => failure.hint(&format!("waited {}", short(waited))),
        None => failure,
    };
    // Only a single lock has slots.
    if let ([key], true) = (keys, is_shared) {
        let message = "the lock is taken: others hold the slots that it needs".to_owned();
        let hint = format!("redbolt ls {} shows the holders", slots_of(key));
        return told(Failure { message, ..failure }).hint(&hint);
    }
    for key in keys {
        let Some(seen) = session.look_at(key) else { continue };
        if let Some(other) = seen.other_data() {
            let message = format!("no quorum: {other}");
            let failure = Failure { code: NO_QUORUM, kind: "no_quorum", message, ..failure };
            return told(if keys.len() > 1 { failure.of(key) } else { failure });
        }
        let Some(holder) = &seen.holder else { continue };
        let (votes, by, count) = (holder.by.votes, holders::words(holder), seen.nodes.len());
        let by = format!("held on {votes} of {count} nodes by {by}{}", holders::for_now(holder));
        let failure = Failure { message: format!("the lock is taken: {by}"), ..failure };
        let failure = told(if keys.len() > 1 { failure.of(key) } else { failure });
        if holder.name().is_some() {
            return failure;
        }
        return failure.hint(&status(key));
    }
    let (what, key) = match keys {
        [key] => ("the lock", *key),
        _ => ("one of the locks", &b"KEY"[..]),
    };
    let message = format!("{what} is taken: another client holds it or asks for it");
    told(Failure { message, ..failure }).hint(&status(key))
}

fn status(key: &[u8]) -> String {
    format!("redbolt status {} shows the holder and the time left", argument(key))
}
