//! `redbolt leader`: which client leads an election, and since when.

use std::time::Duration;

use redbolt::inspect::Led;
use serde_json::json;

use crate::args::{Global, LeaderArgs};
use crate::clock::time;
use crate::exit::Failure;
use crate::inspect::{Holder, Verdict};
use crate::output::{Paint, say, shown};
use crate::signals::{ENDING, Signals};
use crate::status::judge;
use crate::{holders, inspect, look};

const INTERVAL: Duration = Duration::from_millis(200);

/// How long one wait for a change lasts; after it the command looks for signals.
const STEP: Duration = Duration::from_millis(20);

pub(crate) fn run(global: &Global, args: &LeaderArgs) -> Result<(), Failure> {
    if args.watch {
        return watch(global, args);
    }
    let (client, _) = look::client(global)?;
    let seen = inspect::leader(&client, &args.election.0)?;
    say(told(&seen.key, seen.verdict, seen.holder.as_ref(), global.json))?;
    judge(&seen, client.quorum())
}

fn watch(global: &Global, args: &LeaderArgs) -> Result<(), Failure> {
    let interval = look::interval(args.interval.unwrap_or(INTERVAL))?;
    let signals = Signals::watch(&ENDING, || {})?;
    let (client, _) = look::client(global)?;
    let mut observer = client.observe(&args.election.0, interval);
    while signals.next().is_none() {
        let Some(seen) = observer.next_change().wait_for(STEP) else { continue };
        let (verdict, holder) = match seen? {
            Led::By(by) => (Verdict::Held, Some(Holder { by, listed: None })),
            Led::Nobody => (Verdict::Free, None),
            Led::Unknown | _ => (Verdict::Unknown, None),
        };
        let told = told(&args.election.0, verdict, holder.as_ref(), global.json);
        say(if global.json { told } else { format!("{}  {told}", time()) })?;
    }
    Ok(())
}

/// The leader, as an object or in a sentence.
fn told(name: &[u8], verdict: Verdict, leader: Option<&Holder>, json: bool) -> String {
    let name = shown(name);
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
        (None, Verdict::Unknown) => format!(
            "{name}: too few nodes with a vote answered to know who leads (redbolt doctor says more)"
        ),
        (None, _) => format!("{name} has no leader"),
    }
}
