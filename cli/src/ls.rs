//! `redbolt ls`: the locks on the nodes, with their holders.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use redbolt::inspect::{NodeId, NodeMask};
use redbolt::{Cause, now};
use serde_json::{Value, json};

use crate::args::{Global, LsArgs};
use crate::exit::{DOCTOR, Failure, NO_QUORUM, TAKEN, not_searched};
use crate::inspect::{Listing, NodeKey, Searched, SeenLock, Verdict, search};
use crate::output::{counted, ms, note, say, short, shown};
use crate::table::Table;
use crate::{holders, look, settings, terminal};

/// The time between two looks, with --wait.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The remedy for a user who may not list locks.
const LIST_RIGHTS: &str = "grant the user +scan +getrange +pttl";

pub(crate) fn run(global: &Global, args: &LsArgs) -> Result<(), Failure> {
    Failure::by_signal(global.json)?;
    let (client, config) = look::client(global)?;
    let lists = settings::quorums(global, &config)?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let end = args.wait.map(|wait| now() + wait);
    // With `--wait`, report even locks that can never have a vote to spare.
    let is_strict = args.wait.is_some() && need_all(&lists);
    let mut before = None;
    let (mut listing, count, is_unknown) = loop {
        let listing = search(&client, prefix(global), &args.pattern.0, limit)?;
        // Only nodes that vote show who holds a lock.
        let is_unknown = may_miss(&lists, &listing) || !client.is_ready();
        let all = without_spare(&listing, is_strict);
        // A lock that is taken just now has its last votes a moment later.
        let count = match &before {
            Some(before) => all.intersection(before).count(),
            None => all.len(),
        };
        if count == 0 && !is_unknown || end.is_none_or(|end| end <= now()) {
            break (listing, count, is_unknown);
        }
        before = Some(all);
        thread::sleep(LOOK_AGAIN);
    };
    if args.long {
        listing.locks.sort_by_key(|lock| Reverse(held_for(lock)));
    }
    print(&listing, args, (count, is_unknown), global.json)?;
    if is_unknown {
        let few = || format!("too few nodes vote, so locks may be missing or unknown; {DOCTOR}");
        let message = left_out(&listing).unwrap_or_else(few);
        return Err(Failure::unsearched(&listing.nodes, client.quorum(), message));
    }
    left_out(&listing).into_iter().for_each(note);
    let holders = listing.locks.iter().filter_map(|lock| lock.holder.as_ref());
    let mut holders = holders.filter(|holder| holder.name().is_none());
    if !global.json
        && let Some(why) = holders.find_map(holders::why_unlisted)
    {
        note(format_args!("where the holder has no name, {why}"));
    }
    match end {
        // Nothing is known of the locks beyond the limit.
        Some(_) if !listing.is_whole => Err(Failure::code(NO_QUORUM)),
        Some(_) if count > 0 => Err(Failure::code(TAKEN)),
        Some(_) | None => Ok(()),
    }
}

/// Prints the locks, and how many of them have no vote to spare.
fn print(
    listing: &Listing,
    args: &LsArgs,
    (count, is_unknown): (usize, bool),
    json: bool,
) -> Result<(), Failure> {
    if json {
        listing.locks.iter().try_for_each(|lock| say(self::json(lock)))?;
    } else if !listing.locks.is_empty() {
        let width = terminal::width();
        let locks = listing.locks.iter();
        say(if args.long { long_table(locks).fit(width) } else { table(locks).fit(width) })?;
    } else if !is_unknown {
        say(format_args!("no locks match {}", shown(&args.pattern.0)))?;
    }
    if count > 0 && !json {
        let (locks, them) = (counted(count, "lock"), if count == 1 { "it" } else { "them" });
        say(format_args!(
            "{locks} with no vote to spare: one more node that fails or restarts ends {them}"
        ))?;
    }
    if !listing.is_whole {
        note(format_args!(
            "there are more locks than {}, or more keys than ls looks at: take a larger --limit, \
             or a narrower pattern",
            args.limit
        ));
    }
    Ok(())
}

/// The nodes that were not searched, with the remedy.
fn left_out(listing: &Listing) -> Option<String> {
    let left_out = not_searched(&listing.nodes)?;
    // The doctor asks for the rights that locks need, not for those that a list needs.
    let is_denied = |node: &Searched| matches!(node.cause, Cause::None | Cause::NoPermission);
    let hint = if listing.nodes.iter().all(is_denied) { LIST_RIGHTS } else { DOCTOR };
    Some(format!("not searched: {left_out}; {hint}"))
}

/// Whether a lock of these lists needs the votes of all nodes of a list.
pub(crate) fn need_all(lists: &[(NodeMask, usize)]) -> bool {
    lists.iter().any(|&(list, quorum)| list.into_iter().count() <= quorum)
}

/// Names and tokens of the locks that would not survive the loss of one node more. Locks that need
/// the votes of all nodes count only if `is_strict` is set.
pub(crate) fn without_spare(listing: &Listing, is_strict: bool) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let name = |lock: &SeenLock| {
        let holder = lock.holder.as_ref().filter(|_| lock.is_tight || is_strict)?;
        Some((lock.key.clone(), holder.by.token.as_bytes().to_owned()))
    };
    listing.locks.iter().filter_map(name).collect()
}

/// The bytes in front of every key on the nodes.
pub(crate) fn prefix(global: &Global) -> &[u8] {
    global.prefix.as_deref().map(OsStrExt::as_bytes).unwrap_or_default()
}

/// Whether a lock could be only on nodes that were not searched: on a quorum of any list.
pub(crate) fn may_miss(lists: &[(NodeMask, usize)], listing: &Listing) -> bool {
    let nodes = listing.nodes.iter().zip((0..).map_while(NodeId::new));
    let left_out: Vec<NodeId> =
        nodes.filter(|(node, _)| node.cause != Cause::None).map(|(_, id)| id).collect();
    let within = |list: NodeMask| left_out.iter().filter(|id| list.contains(**id)).count();
    lists.iter().any(|&(list, quorum)| within(list) >= quorum)
}

fn json(lock: &SeenLock) -> Value {
    json!({
        "key": shown(&lock.key),
        "verdict": lock.verdict.name(),
        "ttl_ms": ends_in(lock).map(ms),
        "holder": lock.holder.as_ref().map(holders::json),
    })
}

/// For how long the holder has held the lock, according to the holder.
pub(crate) fn held_for(lock: &SeenLock) -> Option<Duration> {
    holders::held_for(lock.holder.as_ref()?)
}

/// The table with the holders' own times: `unknown` if a holder does not tell.
pub(crate) fn long_table<'a>(locks: impl Iterator<Item = &'a SeenLock>) -> Table<5> {
    let mut table = Table::new(["lock", "held for", "state", "ends in", "holder"]);
    for lock in locks {
        let unknown = || if lock.holder.is_some() { "unknown".to_owned() } else { String::new() };
        let held = held_for(lock).map_or_else(unknown, short);
        table.add([shown(&lock.key), held, state(lock), ends(lock), by(lock)]);
    }
    table
}

fn table<'a>(locks: impl Iterator<Item = &'a SeenLock>) -> Table<4> {
    let mut table = Table::new(["lock", "state", "ends in", "holder"]);
    for lock in locks {
        table.add([shown(&lock.key), state(lock), ends(lock), by(lock)]);
    }
    table
}

/// `held 3/5`: the verdict, and how many nodes hold the lock.
fn state(lock: &SeenLock) -> String {
    let count = lock.nodes.len();
    match &lock.holder {
        Some(holder) => format!("held {}/{count}", holder.by.votes),
        None => lock.verdict.name().to_owned(),
    }
}

fn ends(lock: &SeenLock) -> String {
    ends_in(lock).map_or_else(|| "never".to_owned(), short)
}

fn by(lock: &SeenLock) -> String {
    lock.holder.as_ref().map(holders::words).unwrap_or_default()
}

/// When the lock ends, or the last of its keys if nobody holds it; `None` for never.
fn ends_in(lock: &SeenLock) -> Option<Duration> {
    if lock.verdict == Verdict::Held {
        return lock.holder.as_ref()?.by.ends_in;
    }
    let ttls = lock.nodes.iter().filter_map(NodeKey::held);
    let ttls = ttls.map(|(_, ttl)| ttl.unwrap_or(Duration::MAX));
    ttls.max().filter(|ttl| *ttl < Duration::MAX)
}
