//! `redbolt leader`: who leads an election, and since when.

use std::time::{Duration, SystemTime};

use redbolt::inspect::{Holder, SeenLock, Verdict};
use serde_json::{Value, json};

use crate::args::{Global, LeaderArgs};
use crate::clock::{time, wall};
use crate::exit::{Failure, code_without_quorum};
use crate::output::{Paint, ms, say, short, shown};
use crate::signals::{ENDING, Signals};
use crate::status::silences;
use crate::{holders, look};

const INTERVAL: Duration = Duration::from_millis(200);

/// How long one wait for a change lasts, behind which signals are looked for.
const STEP: Duration = Duration::from_millis(20);

pub(crate) fn run(global: &Global, args: &LeaderArgs) -> Result<(), Failure> {
    if args.watch {
        return watch(global, args);
    }
    let (mut client, _) = look::client(global)?;
    let seen = client.leader(&args.election.0)?;
    say(told(&seen, global.json))?;
    if seen.verdict != Verdict::Unknown {
        return Ok(());
    }
    let quorum = usize::try_from(client.driver().quorum()).unwrap_or(usize::MAX);
    Err(Failure::code(code_without_quorum(silences(&seen.nodes), quorum)))
}

fn watch(global: &Global, args: &LeaderArgs) -> Result<(), Failure> {
    let interval = look::interval(args.interval.unwrap_or(INTERVAL))?;
    let signals = Signals::watch(&ENDING, || {})?;
    let (mut client, _) = look::client(global)?;
    let mut observer = client.observe(&args.election.0, interval);
    while signals.next().is_none() {
        let Some(seen) = observer.next(STEP)? else { continue };
        let told = told(&seen, global.json);
        say(if global.json { told } else { format!("{}  {told}", time()) })?;
    }
    Ok(())
}

fn told(seen: &SeenLock, json: bool) -> String {
    if json { object(seen).to_string() } else { sentence(seen, Paint::stdout()) }
}

fn object(seen: &SeenLock) -> Value {
    let since = |holder: &Holder| holder.since?.duration_since(SystemTime::UNIX_EPOCH).ok();
    json!({
        "name": shown(&seen.key),
        "verdict": seen.verdict,
        "leader": seen.holder.as_ref().map(|holder| json!({
            "client": holder.client,
            "host": holder.host,
            "pid": holder.pid,
            "program": holder.program,
            "since_ms": since(holder).map(ms),
            "votes": holder.votes,
            "ends_ms": holder.ends_in.map(ms),
        })),
    })
}

fn sentence(seen: &SeenLock, paint: Paint) -> String {
    let name = paint.bold(shown(&seen.key));
    match (&seen.holder, seen.verdict) {
        (Some(leader), _) => {
            let since = leader.since.map_or_else(
                || ", which has not said its name".to_owned(),
                |since| {
                    let for_now = wall().duration_since(since).unwrap_or_default();
                    let at = humantime::format_rfc3339_seconds(since);
                    format!(" since {at}, for {} now", short(for_now))
                },
            );
            format!("{name} is led by {}{since}", paint.yellow(holders::words(leader)))
        }
        (None, Verdict::Unknown) => format!(
            "{name}: too few nodes with a vote answered to know who leads (redbolt doctor says more)"
        ),
        (None, _) => format!("{name} has no leader"),
    }
}
