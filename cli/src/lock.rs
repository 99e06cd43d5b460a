//! `redbolt lock`, and the parts that it shares with `extend` and `run`: its options, and printing
//! the lock that is held.

use std::time::Duration;

use redbolt::inspect::NodeState;
use redbolt::{Lease, LockOptions, now};
use serde_json::json;

use crate::args::{Global, LockArgs};
use crate::exit::{Failure, TAKEN};
use crate::holders;
use crate::output::{ms, say, short, shown};
use crate::session::Session;
use crate::signals::ENDING;
use crate::waiting::Waiting;

pub(crate) fn run(global: &Global, args: &LockArgs) -> Result<(), Failure> {
    let mut session = Session::open(global, &ENDING)?;
    let is_shared = args.slots.is_some();
    let waiting = waiting(&session, &args.key.0, is_shared, args.wait);
    let (key, began) = (&args.key.0, now());
    let options = options(args.ttl, args.fence);
    let options = match args.slots {
        Some(slots) => options.slots(slots.into()),
        None => options,
    };
    let result = session.lock(key, options, args.wait);
    drop(waiting);
    let waited = args.wait.map(|_| now() - began);
    let result = result.map_err(|failure| {
        let failure = explain(&mut session, failure, (key, is_shared), waited);
        if waited.is_some() { failure } else { failure.hint_wait() }
    });
    let result = result.and_then(|lease| {
        session.gather_votes(&lease)?;
        // If this or printing fails, the drop of the lease releases the lock again.
        announce(&session, &lease, global.json)?;
        session.driver.detach(&lease)?;
        Ok(())
    });
    session.close();
    result
}

/// The options with which a lock is taken.
pub(crate) const fn options(ttl: Duration, is_fenced: bool) -> LockOptions {
    let options = LockOptions::new(ttl);
    if is_fenced { options.fenced() } else { options }
}

/// Prints key, token, validity and votes, and the fence of a lock that was taken with a fence.
pub(crate) fn announce(session: &Session, lease: &Lease, json: bool) -> Result<(), Failure> {
    let nodes = session.driver.nodes();
    let nodes = nodes.iter().filter(|node| node.state != NodeState::Unlisted).count();
    let (key, validity) = (shown(lease.key()), lease.remaining());
    let (token, votes) = (shown(lease.token().as_bytes()), lease.votes().count());
    if json {
        say(json!({
            "key": key,
            "token": token,
            "validity_ms": ms(validity),
            "votes": votes,
            "nodes": nodes,
            "fence": lease.fence(),
            "slot": lease.slot(),
        }))?;
    } else {
        say(format_args!(
            "key       {key}\ntoken     {token}\nvalidity  {}\nvotes     {votes} of {nodes}",
            short(validity)
        ))?;
        if let Some(fence) = lease.fence() {
            say(format_args!("fence     {fence}"))?;
        }
        if let Some(slot) = lease.slot() {
            say(format_args!("slot      {slot}"))?;
        }
    }
    Ok(())
}

/// Tells why the command waits for a lock, while it waits.
pub(crate) fn waiting(
    session: &Session,
    key: &[u8],
    is_shared: bool,
    wait: Option<Duration>,
) -> Option<Waiting> {
    wait.map(|wait| Waiting::start(&session.config, key, is_shared, wait))
}

/// Names the holder of a lock that is taken, as far as one round trip tells, and the time waited.
pub(crate) fn explain(
    session: &mut Session,
    failure: Failure,
    (key, is_shared): (&[u8], bool),
    waited: Option<Duration>,
) -> Failure {
    if failure.code != TAKEN {
        return failure;
    }
    let told = |failure: Failure| match waited {
        Some(waited) => failure.hint(&format!("waited {}", short(waited))),
        None => failure,
    };
    if is_shared {
        let message = "the lock is taken: others hold the slots that it needs".to_owned();
        let hint = format!("redbolt ls '{}:slot*' shows the holders", shown(key));
        return told(Failure { message, ..failure }).hint(&hint);
    }
    let seen = session.look_at(key);
    let holder = seen.as_ref().and_then(|seen| Some((seen.holder.as_ref()?, seen.nodes.len())));
    let by = holder.map(|(holder, count)| {
        let (votes, by) = (holder.by.votes, holders::words(holder));
        format!("held on {votes} of {count} nodes by {by}{}", holders::for_now(holder))
    });
    let by = by.unwrap_or_else(|| "another holds it or asks for it".to_owned());
    let failure = Failure { message: format!("the lock is taken: {by}"), ..failure };
    let failure = told(failure);
    if holder.is_some_and(|(holder, _)| holder.name().is_some()) {
        return failure;
    }
    failure.hint(&format!("redbolt status {} shows the holder and the time left", shown(key)))
}
