//! `redbolt top`: the locks on the nodes as a live view, those that are held longest first.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use redbolt::inspect::{Listing, SeenLock};
use redbolt::{Client, Instant, now};

use crate::args::{Global, TopArgs};
use crate::clock::time;
use crate::exit::Failure;
use crate::keyboard::Keyboard;
use crate::look;
use crate::ls::{by, ends, left_out, state};
use crate::output::{Paint, short, shown};
use crate::signals::{ENDING, Signals};
use crate::table::Table;
use crate::terminal::{Picture, height, is_live};

/// How often the command drives the client, and looks for a key.
const STEP: Duration = Duration::from_millis(20);

/// More locks than any screen has lines.
const LIMIT: usize = 500;

/// Since when each lock was seen with the same token.
type Since = BTreeMap<Vec<u8>, (Vec<u8>, Instant)>;

pub(crate) fn run(global: &Global, args: &TopArgs) -> Result<(), Failure> {
    let interval = look::interval(args.interval)?;
    let is_terminal = is_live(&io::stdout()) && io::IsTerminal::is_terminal(&io::stdin());
    if global.json || !is_terminal {
        let message = "top needs a terminal; redbolt ls lists the locks once, and has --json";
        return Err(Failure::usage(message));
    }
    let signals = Signals::watch(&ENDING, || {})?;
    let (mut client, _) = look::client(global)?;
    let keyboard = Keyboard::open()?;
    let mut picture = Picture::default();
    let mut since = Since::new();
    loop {
        let listing = client.locks(&args.pattern.0, LIMIT)?;
        note_tokens(&mut since, &listing.locks);
        picture.draw(lines(&client, &listing, &since, interval))?;
        if has_ended(&signals, &keyboard, &mut client, interval)? {
            return Ok(());
        }
    }
}

/// Keeps since when each token was seen, and forgets those that have gone.
fn note_tokens(since: &mut Since, locks: &[SeenLock]) {
    let time = now();
    let mut seen = Since::new();
    for lock in locks {
        let Some(holder) = &lock.holder else { continue };
        let token = holder.token.as_bytes();
        let known = since.remove(&lock.key).filter(|(before, _)| before == token);
        seen.insert(lock.key.clone(), known.unwrap_or_else(|| (token.to_owned(), time)));
    }
    *since = seen;
}

fn lines(client: &Client, listing: &Listing, since: &Since, interval: Duration) -> Vec<String> {
    let paint = Paint::stdout();
    let time_now = now();
    let mut locks: Vec<_> = listing
        .locks
        .iter()
        .map(|lock| (since.get(&lock.key).map(|(_, since)| *since), lock))
        .collect();
    // Those without a holder come last.
    locks.sort_by_key(|(since, _)| since.unwrap_or(Instant::MAX));
    let voters = client.driver().voters().count();
    let more = if listing.is_whole { "" } else { " and more" };
    let head =
        format!("{} locks{more}; {voters} of {} nodes vote", locks.len(), listing.nodes.len());
    let mut lines = vec![paint.bold(head)];
    lines.extend(left_out(listing).map(|nodes| paint.red(format!("not searched: {nodes}"))));
    let mut table = Table::new(["lock", "held for", "state", "ends in", "holder"]);
    for (since, lock) in &locks {
        let held = since.map(|since| short(time_now.saturating_since(since)));
        let held = held.map(|held| format!("over {held}")).unwrap_or_default();
        table.add([shown(&lock.key), held, state(lock), ends(lock), by(lock)]);
    }
    // A row that is too wide is cut: it is one line, whatever the width.
    lines.extend(table.to_string().lines().map(str::to_owned));
    let end = format!("{}, each {}; q or Ctrl-C ends", time(), short(interval));
    let rows = height().saturating_sub(2);
    lines.truncate(rows);
    lines.push(paint.dim(end));
    lines
}

/// Waits until the next look. True if it is to end.
fn has_ended(
    signals: &Signals,
    keyboard: &Keyboard,
    client: &mut Client,
    interval: Duration,
) -> io::Result<bool> {
    let end = now() + interval;
    loop {
        let left = now().until(end);
        if left.is_zero() {
            return Ok(false);
        }
        if signals.wait(left.min(STEP)).is_some() || keyboard.has_quit()? {
            return Ok(true);
        }
        client.drive()?;
    }
}
