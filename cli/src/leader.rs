//! `redbolt leader`: which client leads an election, and since when.

use std::time::Duration;

use redbolt::now;
use serde_json::json;

use crate::args::{Global, LeaderArgs};
use crate::clock::time;
use crate::exit::Failure;
use crate::inspect::{SeenLock, Verdict};
use crate::output::{Paint, say, shown};
use crate::signals::{ENDING, Signals};
use crate::status::judge;
use crate::{holders, inspect, look};

const INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(global: &Global, args: &LeaderArgs) -> Result<(), Failure> {
    if args.watch {
        return watch(global, args).or_else(Failure::unless_interrupted);
    }
    let (client, _) = look::client(global)?;
    let seen = inspect::leader(&client, &args.election.0)?;
    say(told(&seen, global.json))?;
    judge(&seen, client.quorum())
}

fn watch(global: &Global, args: &LeaderArgs) -> Result<(), Failure> {
    let interval = look::interval(args.interval.unwrap_or(INTERVAL))?;
    let signals = Signals::watch(&ENDING, || {})?;
    let (client, _) = look::client_until(global, Some(&signals))?;
    let mut last = None;
    let mut ends = now();
    loop {
        let seen = inspect::leader(&client, &args.election.0)?;
        if let Some(holder) = &seen.holder {
            ends = now() + holder.by.ends_in.unwrap_or_default();
        }
        // While nodes are away, the leader that was seen last leads until its term would end.
        let is_certain = seen.verdict != Verdict::Unknown || ends <= now();
        if is_certain && last.as_ref().is_none_or(|last| is_news(&seen, last)) {
            let told = told(&seen, global.json);
            say(if global.json { told } else { format!("{}  {told}", time()) })?;
            last = Some(seen);
        }
        if signals.wait(interval).is_some() {
            return Ok(());
        }
    }
}

/// Whether there is another leader, none, or an unknown one, or a leader has got its name.
fn is_news(seen: &SeenLock, last: &SeenLock) -> bool {
    let is_unknown = |it: &SeenLock| it.verdict == Verdict::Unknown;
    let by = |it: &SeenLock| it.holder.as_ref().map(|holder| holder.by.token.clone());
    let is_named = |it: &SeenLock| it.holder.as_ref().is_some_and(|it| it.by.name.is_some());
    is_unknown(seen) != is_unknown(last)
        || by(seen) != by(last)
        || is_named(seen) && !is_named(last)
}

/// The leader, as an object or in a sentence.
fn told(seen: &SeenLock, json: bool) -> String {
    let (name, verdict, leader) = (shown(&seen.key), seen.verdict, seen.holder.as_ref());
    if json {
        let leader = leader.map(holders::leader_json);
        return json!({ "name": name, "verdict": verdict.name(), "leader": leader }).to_string();
    }
    let paint = Paint::stdout();
    let name = paint.bold(name);
    match (leader, verdict) {
        (Some(leader), _) => {
            let who = paint.yellow(holders::words(leader));
            let since = holders::since(leader);
            if since.is_empty() {
                return format!("{name} is led by {who}, which has not said its name");
            }
            format!("{name} is led by {who}{since}{}", holders::for_now(leader))
        }
        (None, Verdict::Unknown) => {
            let few =
                "too few nodes with a vote answered to know who leads (redbolt doctor says more)";
            format!("{name}: {}", seen.other_data().unwrap_or_else(|| few.to_owned()))
        }
        (None, _) => format!("{name} has no leader"),
    }
}
