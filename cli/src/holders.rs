//! The holder of a lock, for people.

use std::time::{Duration, SystemTime};

use redbolt::inspect::{ClientId, ClientName};
use serde_json::{Value, json};

use crate::clock::wall;
use crate::inspect::{Holder, SeenClient};
use crate::output::{add, ms, short};

/// `till on web-7, process 4711, from 10.0.0.9:50412`, or as much of it as is known.
pub(crate) fn words(holder: &Holder) -> String {
    let Some(client) = holder.by.client else {
        return "a client of another library".to_owned();
    };
    named(client, holder.name(), holder.listed.as_ref().map(|listed| &*listed.address))
}

/// The same text for any client.
pub(crate) fn named(client: ClientId, name: Option<&ClientName>, address: Option<&str>) -> String {
    let host = name.and_then(|name| name.host.as_ref());
    let known: Vec<String> = [
        host.map(|host| format!("on {host}")),
        name.and_then(|name| name.pid).map(|pid| format!("process {pid}")),
        address.map(|address| format!("from {address}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (name.and_then(|name| name.program.as_deref()), known.is_empty()) {
        (None, true) => format!("client {client}"),
        (program, _) => {
            let program = program.unwrap_or("a program");
            format!("{program} {} (client {client})", known.join(", "))
        }
    }
}

/// For how long the holder has held the lock, by its wall clock and this machine's; `None` if it
/// does not tell.
pub(crate) fn held_for(holder: &Holder) -> Option<Duration> {
    holder.by.since.map(|since| wall().duration_since(since).unwrap_or_default())
}

/// `, for 12.3 s now`, or nothing.
pub(crate) fn for_now(holder: &Holder) -> String {
    held_for(holder).map(|held| format!(", for {} now", short(held))).unwrap_or_default()
}

/// ` since 2026-07-01T12:00:00Z`, or nothing.
pub(crate) fn since(holder: &Holder) -> String {
    let since = holder.by.since.map(humantime::format_rfc3339_seconds);
    since.map(|since| format!(" since {since}")).unwrap_or_default()
}

/// The object `holder` of a lock.
pub(crate) fn json(holder: &Holder) -> Value {
    let mut json = leader_json(holder);
    add(&mut json, json!({ "address": holder.listed.as_ref().map(|listed| &listed.address) }));
    json
}

/// The object for the leader of an election.
pub(crate) fn leader_json(holder: &Holder) -> Value {
    let by = &holder.by;
    let since = by.since.and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok());
    let mut json = name_json(holder.name());
    add(
        &mut json,
        json!({
            "client": by.client.map(|client| client.to_string()),
            "since_ms": since.map(ms),
            "votes": by.votes,
            "ends_ms": by.ends_in.map(ms),
        }),
    );
    json
}

/// A client, as a node lists it.
pub(crate) fn client_json(seen: &SeenClient) -> Value {
    let mut json = name_json(Some(&seen.name));
    let client = seen.name.client.to_string();
    add(&mut json, json!({ "client": client, "address": seen.address }));
    json
}

fn name_json(name: Option<&ClientName>) -> Value {
    json!({
        "host": name.map(|name| &name.host),
        "pid": name.map(|name| name.pid),
        "program": name.map(|name| &name.program),
    })
}

/// Why no node lists the client of a holder; `None` if one does. The claim beside the lock may name
/// a holder that has ended.
pub(crate) fn why_unlisted(holder: &Holder) -> Option<&'static str> {
    let is_unlisted = holder.by.client.is_some() && holder.listed.is_none();
    is_unlisted.then_some(
        "no node lists this client: it has ended (redbolt lock ends at once), or this user may not \
         run CLIENT LIST",
    )
}
