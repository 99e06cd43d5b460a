//! `redbolt top`: the locks on the nodes as a live view, those that are held longest first.

use std::cmp::Reverse;
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
use crate::ls::{counted, held_for, left_out, long_table};
use crate::output::{Paint, short};
use crate::signals::{ENDING, Signals};
use crate::terminal::{Picture, height, is_live};

/// How often the command drives the client, and looks for a key.
const STEP: Duration = Duration::from_millis(20);

/// More locks than any screen has lines.
const LIMIT: usize = 500;

/// What a holder has said of its lock, and when.
#[derive(Clone)]
struct Said {
    token: Vec<u8>,
    since: Option<Instant>,
    waiters: Option<u32>,
}

/// What the holders have said so far, by key.
type Known = BTreeMap<Vec<u8>, Said>;

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
    let mut known = Known::new();
    loop {
        let mut listing = client.locks(&args.pattern.0, LIMIT)?;
        ask(&mut client, &mut known, &mut listing.locks)?;
        picture.draw(lines(&client, &listing, interval))?;
        if has_ended(&signals, &keyboard, &mut client, interval)? {
            return Ok(());
        }
    }
}

/// Asks the holders of as many locks as the screen has lines: new ones first, then those that are held
/// longest, and takes what the others said before. Leaves the locks in the order in which they are shown.
fn ask(client: &mut Client, known: &mut Known, locks: &mut [SeenLock]) -> Result<(), Failure> {
    let said = |known: &Known, lock: &SeenLock| {
        let token = lock.holder.as_ref()?.token.as_bytes();
        known.get(&lock.key).filter(|said| said.token == token).cloned()
    };
    let since = |said: Option<Said>| said.map(|said| said.since.unwrap_or(Instant::MAX));
    // New ones are none, which is less than any time; those without a holder are not asked.
    locks.sort_by_key(|lock| (lock.holder.is_none(), since(said(known, lock))));
    let (asked, others) = locks.split_at_mut(height().min(locks.len()));
    client.ask_holders(asked)?;
    let time = now();
    for lock in others.iter_mut() {
        let said = said(known, lock);
        if let (Some(holder), Some(said)) = (&mut lock.holder, said) {
            holder.held_for = said.since.map(|since| time.saturating_since(since));
            holder.waiters = said.waiters;
        }
    }
    *known = asked
        .iter()
        .filter_map(|lock| Some((lock.key.clone(), told(lock, time)?)))
        .chain(
            // Those that were not asked now and are still there.
            others.iter().filter_map(|lock| Some((lock.key.clone(), said(known, lock)?))),
        )
        .collect();
    locks.sort_by_key(|lock| Reverse(held_for(lock)));
    Ok(())
}

/// What the holder of a lock has just said.
fn told(lock: &SeenLock, time: Instant) -> Option<Said> {
    let holder = lock.holder.as_ref()?;
    let since = holder.held_for.map(|held| time - held);
    Some(Said { token: holder.token.as_bytes().to_owned(), since, waiters: holder.waiters })
}

fn lines(client: &Client, listing: &Listing, interval: Duration) -> Vec<String> {
    let paint = Paint::stdout();
    let locks = &listing.locks;
    let voters = client.driver().voters().count();
    let more = if listing.is_whole { "" } else { " and more" };
    let head = format!(
        "{}{more}; {voters} of {} nodes vote",
        counted(locks.len(), "lock"),
        listing.nodes.len()
    );
    let mut lines = vec![paint.bold(head)];
    lines.extend(left_out(listing).map(|nodes| paint.red(format!("not searched: {nodes}"))));
    let table = long_table(locks.iter());
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
