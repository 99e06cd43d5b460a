//! `redbolt top`: the locks on the nodes as a live view, longest held first.

use std::cmp::Reverse;
use std::io;
use std::time::Duration;

use redbolt::{Cause, Client, now};

use crate::args::{Global, TopArgs};
use crate::clock::time;
use crate::exit::{Failure, not_searched};
use crate::inspect::{Listing, search};
use crate::keyboard::Keyboard;
use crate::look;
use crate::ls::{held_for, long_table, prefix};
use crate::output::{Paint, counted, short};
use crate::signals::{ENDING, Signals};
use crate::terminal::{Picture, height, is_live, width, wrap};

/// How often the command looks for signals and at the keyboard.
const STEP: Duration = Duration::from_millis(20);

/// More locks than any screen has lines.
const LIMIT: usize = 500;

pub(crate) fn run(global: &Global, args: &TopArgs) -> Result<(), Failure> {
    let interval = look::interval(args.interval)?;
    let is_terminal = is_live(&io::stdout()) && io::IsTerminal::is_terminal(&io::stdin());
    if global.json || !is_terminal {
        let message = "top needs a terminal; redbolt ls lists the locks once, and has --json";
        return Err(Failure::usage(message));
    }
    let signals = Signals::watch(&ENDING, || {})?;
    let (client, _) = look::client_until(global, Some(&signals))?;
    let keyboard = Keyboard::open()?;
    let mut picture = Picture::default();
    loop {
        let mut listing = search(&client, prefix(global), &args.pattern.0, LIMIT)?;
        listing.locks.sort_by_key(|lock| Reverse(held_for(lock)));
        picture.draw(lines(&client, &listing, interval))?;
        if has_ended(&signals, &keyboard, interval)? {
            return Ok(());
        }
    }
}

fn lines(client: &Client, listing: &Listing, interval: Duration) -> Vec<String> {
    let paint = Paint::stdout();
    let locks = &listing.locks;
    let voters = client.voters().count();
    let more = if listing.is_whole { "" } else { " and more" };
    let count = if listing.nodes.iter().all(|node| node.cause != Cause::None) {
        "no lock is known".to_owned()
    } else {
        counted(locks.len(), "lock") + more
    };
    let mut lines =
        vec![paint.bold(format!("{count}; {voters} of {} nodes vote", listing.nodes.len()))];
    if let Some(nodes) = not_searched(&listing.nodes) {
        let text = wrap(&format!("not searched: {nodes}"), 2, width());
        lines.extend(text.lines().map(|line| paint.red(line)));
    }
    let table = |count| long_table(locks.iter().take(count)).fit(width());
    // The last line tells the time, and the terminal needs one for its cursor.
    let room = height().saturating_sub(2 + lines.len());
    let fits = |count: usize| {
        let rest = usize::from(count < locks.len());
        table(count).lines().count() + rest <= room
    };
    let shown = (0..=locks.len().min(room)).rev().find(|count| fits(*count)).unwrap_or(0);
    lines.extend(table(shown).lines().map(str::to_owned));
    if shown < locks.len() {
        lines.push(paint.dim(format!("  and {} more", locks.len() - shown)));
    }
    lines.push(paint.dim(format!("{}, each {}; q or Ctrl-C ends", time(), short(interval))));
    lines
}

/// Waits until the next look. True if the view is to end.
fn has_ended(signals: &Signals, keyboard: &Keyboard, interval: Duration) -> io::Result<bool> {
    let end = now() + interval;
    loop {
        let left = now().until(end);
        if left.is_zero() {
            return Ok(false);
        }
        if signals.wait(left.min(STEP)).is_some() || keyboard.has_quit()? {
            return Ok(true);
        }
    }
}
