//! `redbolt unlock --force`: takes a lock from its holder, once a person has seen which client that
//! is.
//!
//! # Contract
//!
//! - It deletes only the token that it has shown: a lock that has changed hands since stays.
//! - It deletes nothing without a yes, on a terminal or by `--yes`.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use redbolt::{UnlockError, Unlocked};
use serde_json::json;

use crate::args::{Global, UnlockArgs};
use crate::exit::{DOCTOR, Failure, LOST, NO_QUORUM, REFUSED};
use crate::inspect::{Holder, SeenLock, Verdict};
use crate::names::names;
use crate::output::{note, say, short, shown};
use crate::terminal::{error_width, wrap};
use crate::unlock::too_few;
use crate::{clock, holders, inspect, look};

/// How long the command gives a waiter to get the lock, before it looks for the next holder.
const MOMENT: Duration = Duration::from_millis(100);

const CONSEQUENCE: &str = "The holder is not stopped: it keeps working until it learns of its loss. \
    redbolt help unlock says when that is.";

pub(crate) fn run(global: &Global, args: &UnlockArgs) -> Result<(), Failure> {
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !args.yes && !can_ask {
        return Err(Failure::usage(
            "unlock --force asks on a terminal; without one it needs --yes",
        ));
    }
    let [name] = *names(&args.keys) else {
        return Err(Failure::usage("unlock --force takes one KEY: it asks for each"));
    };
    let (client, _) = look::client(global)?;
    let seen = inspect::holder(&client, name)?;
    let key = shown(name);
    let holder = seen.holder.as_ref().ok_or_else(|| nobody(&seen, &key, client.quorum()))?;
    if !args.yes && !is_confirmed(&key, holder)? {
        return Err(Failure::new(REFUSED, "refused", format!("{key} stays as it is")));
    }
    match client.unlock_token(name, holder.by.token.as_bytes()).wait() {
        Ok(Unlocked::Released) => {}
        Err(UnlockError::NotHeld) => {
            let message = format!(
                "{key} is no longer held by {}; nothing was taken from anybody else",
                holders::words(holder)
            );
            return Err(Failure::new(LOST, "not_held", message));
        }
        Ok(_) => return Err(too_few(&key).away(&client.nodes().wait(), client.quorum())),
        Err(error) => return Err(error.into()),
    }
    let who = holders::words(holder);
    note(format_args!("{} took {key} from {who}", clock::time()));
    // A client that waited for the lock has it in a moment.
    std::thread::sleep(MOMENT);
    let next = inspect::holder(&client, name).ok().and_then(|seen| seen.holder);
    if global.json {
        let (holder, next) = (holders::json(holder), next.as_ref().map(holders::json));
        return Ok(say(json!({"key": key, "released": true, "holder": holder, "next": next}))?);
    }
    let next = next.map(|next| format!("; now it is held by {}", holders::words(&next)));
    Ok(say(format_args!("{key} is taken from {who}{}", next.unwrap_or_default()))?)
}

/// Why the lock has no holder from which the command could take it.
fn nobody(seen: &SeenLock, key: &str, quorum: u32) -> Failure {
    match seen.verdict {
        Verdict::Free => Failure::new(LOST, "not_held", format!("{key} is free")),
        Verdict::Split => {
            let message = format!(
                "{key} is held by nobody: no token has the votes of a lock, and {} (redbolt status \
                 shows them)",
                seen.end_of_keys()
            );
            Failure::new(LOST, "not_held", message)
        }
        Verdict::Held | Verdict::Unknown => {
            if let Some(other) = seen.other_data() {
                return Failure::new(NO_QUORUM, "unknown", format!("{key} is no lock: {other}"));
            }
            let message =
                format!("too few nodes with a vote answered to know which client holds {key}");
            Failure::new(NO_QUORUM, "unknown", message).unseen(&seen.nodes, quorum).hint(DOCTOR)
        }
    }
}

/// Shows the holder, and asks.
fn is_confirmed(key: &str, holder: &Holder) -> io::Result<bool> {
    let ends = holder.by.ends_in.map_or_else(
        || "never ends".into(),
        |left| format!("ends in {} unless it is extended", short(left)),
    );
    let mut out = io::stderr().lock();
    let columns = Some(error_width());
    let (who, since) = (holders::words(holder), holders::for_now(holder));
    let held = format!("{key} is held by {who}{since}, and {ends}.");
    writeln!(out, "{}", wrap(&held, 0, columns))?;
    if let Some(why) = holders::why_unlisted(holder) {
        writeln!(out, "{}.", wrap(why, 0, columns))?;
    }
    writeln!(out, "{}", wrap(CONSEQUENCE, 0, columns))?;
    write!(out, "Take {key} away? [y/N] ")?;
    out.flush()?;
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        // At the end of the input the cursor still stands behind the question.
        writeln!(out)?;
    }
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
