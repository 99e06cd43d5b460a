//! `redbolt run`: holds locks while a command runs.
//!
//! # Invariants
//!
//! - Several locks are taken in the order of their bytes. A waiter for one holds only smaller ones,
//!   so waiters cannot deadlock.
//! - The driver keeps the locks alive, even while `run` waits for the next one.

use std::ffi::OsString;
use std::path::Path;

use redbolt::{Lease, now};

use crate::args::{Global, RunArgs};
use crate::exit::{Failure, LOST, TAKEN};
use crate::lock::{hint_taken, options, waiting};
use crate::output::shown;
use crate::session::{CONNECT_LIMIT, Session};
use crate::work;

/// The most letters of a file's name in a client's name, which has at most 64.
const FILE_MAX: usize = 60;

pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    let grace = work::grace(args.ttl, args.grace)?;
    if args.fence && keys(args).len() > 1 {
        return Err(Failure::usage("--fence takes one KEY: fences compare within one lock only"));
    }
    let name = args.name.clone().unwrap_or_else(|| name_of(&work::command(&args.command)));
    let mut session = work::session(global, "run", |config| config.client_name(name))?;
    // The error of a single attempt already tells everything.
    session.is_telling = args.wait.is_some();
    let leases = take_all(&mut session, args);
    let leases = leases.map_err(|failure| conflict(failure, args, global.json))?;
    let ended = work::under(&mut session, leases, &args.command, grace, args.max_hold);
    session.close();
    ended?.judge()
}

/// The name of a holder that was given none: `run/` and the file that runs, never its arguments.
fn name_of(command: &[OsString]) -> String {
    let file = command.first().and_then(|program| Path::new(program).file_name());
    let file = file.unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_+@".contains(c) { c } else { '_' };
    let file: String = file.chars().map(plain).take(FILE_MAX).collect();
    format!("run/{file}")
}

/// The names of the locks, each once and in the order of their bytes.
fn keys(args: &RunArgs) -> Vec<&[u8]> {
    let mut keys: Vec<&[u8]> = args.keys.iter().map(|key| &*key.0).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Takes the locks, in the order of their bytes. If it cannot take one, it drops the others, and so
/// releases them.
fn take_all(session: &mut Session, args: &RunArgs) -> Result<Vec<Lease>, Failure> {
    let keys = keys(args);
    session.wait_settled(CONNECT_LIMIT)?;
    let end = args.wait.map(|wait| now() + wait);
    let mut leases: Vec<Lease> = Vec::with_capacity(keys.len());
    for key in keys {
        let left = end.map(|end| now().until(end));
        let acquire = options(args.ttl, args.fence).announced();
        let waiting = waiting(session, key, left);
        let taken = session.lock(key, acquire, left);
        drop(waiting);
        if let Some(lost) = leases.iter().find(|lease| !lease.is_valid()) {
            return Err(Failure::new(
                LOST,
                "lost",
                format!(
                    "{} was lost while {} was waited for: the command was not started",
                    shown(lost.key()),
                    shown(key)
                ),
            ));
        }
        leases.push(taken.map_err(|failure| {
            let failure = if args.keys.len() > 1 { failure.of(key) } else { failure };
            // With --no-wait the user already knows that the command does not wait.
            if args.no_wait { failure } else { hint_taken(failure, key, args.wait) }
        })?);
    }
    Ok(leases)
}

/// The failure for a lock that is taken, as the options ask for it.
fn conflict(failure: Failure, args: &RunArgs, json: bool) -> Failure {
    match args.conflict_exit_code {
        Some(0) if failure.code == TAKEN && !json => Failure::code(0),
        Some(code) if failure.code == TAKEN => Failure { code, ..failure },
        _ => failure,
    }
}
