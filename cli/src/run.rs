//! `redbolt run`: holds locks while a command runs.
//!
//! # Invariants
//!
//! - Several locks are taken in the order of their bytes. A waiter for one holds only smaller ones,
//!   so waiters cannot deadlock.
//! - The driver keeps the locks alive, even while `run` waits for the next one.

use std::time::Duration;

use redbolt::{Lease, LockOptions, now};

use crate::args::{Global, RunArgs, ShareArgs};
use crate::exit::{Failure, LOST, TAKEN};
use crate::lock::{explain, options, waiting};
use crate::output::shown;
use crate::session::{CONNECT_LIMIT, Session};
use crate::{settings, work};

/// The TTL where none is given.
const TTL: Duration = Duration::from_secs(10);

pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    let ttl = settings::ttl(global, args.ttl, TTL);
    let grace = work::grace(ttl, args.grace)?;
    if args.fence && args.share.write {
        return Err(Failure::usage("--fence takes one lock: each slot of --write has its own"));
    }
    if args.fence && keys(args).len() > 1 {
        return Err(Failure::usage("--fence takes one KEY: fences compare within one lock only"));
    }
    let name = args.name.clone().unwrap_or_else(|| work::name_of("run", &args.command));
    let mut session = work::session(global, "run", |config| config.client_name(name))?;
    // The error of a single attempt already tells everything.
    session.is_telling = args.wait.is_some();
    let is_quiet = args.conflict_exit_code == Some(0) && !global.json;
    let leases = take_all(&mut session, args, ttl, is_quiet);
    let leases = leases.map_err(|failure| conflict(failure, args, is_quiet))?;
    let ended = work::under(&mut session, leases, &args.command, grace, args.max_hold);
    session.close();
    ended?.judge()
}

/// The names of the locks, each once and in the order of their bytes.
fn keys(args: &RunArgs) -> Vec<&[u8]> {
    let mut keys: Vec<&[u8]> = args.keys.iter().map(|key| &*key.0).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Takes the locks, in the order of their bytes. If one cannot be taken, the others are dropped and
/// so released.
fn take_all(
    session: &mut Session,
    args: &RunArgs,
    ttl: Duration,
    is_quiet: bool,
) -> Result<Vec<Lease>, Failure> {
    let keys = keys(args);
    session.wait_settled(CONNECT_LIMIT)?;
    let end = args.wait.map(|wait| now() + wait);
    let mut leases: Vec<Lease> = Vec::with_capacity(keys.len());
    for key in keys {
        let began = now();
        let left = end.map(|end| began.until(end));
        let acquire = args.share.of(options(ttl, args.fence).announced());
        let is_shared = args.share.is_of_slots();
        let waiting = waiting(session, key, is_shared, left);
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
            if is_quiet {
                return failure;
            }
            let waited = args.wait.map(|_| now() - began);
            let failure = explain(session, failure, (key, is_shared), waited);
            let failure = if args.keys.len() > 1 { failure.of(key) } else { failure };
            // With --no-wait the user already knows that the command does not wait.
            let is_told = args.no_wait || args.wait.is_some();
            if is_told { failure } else { failure.hint_wait() }
        })?);
    }
    Ok(leases)
}

impl ShareArgs {
    /// Whether the lock has slots.
    const fn is_of_slots(&self) -> bool {
        self.slots.is_some() || self.read || self.write
    }

    /// So much of each lock as the command line says.
    fn of(&self, options: LockOptions) -> LockOptions {
        let readers = self.readers.into();
        match self {
            Self { slots: Some(slots), .. } => options.slots((*slots).into()),
            Self { read: true, .. } => options.read(readers),
            Self { write: true, .. } => options.write(readers),
            Self { slots: None, .. } => options,
        }
    }
}

/// The failure for a lock that is taken, as the options ask for it.
fn conflict(failure: Failure, args: &RunArgs, is_quiet: bool) -> Failure {
    match args.conflict_exit_code {
        Some(_) if failure.code == TAKEN && is_quiet => Failure::code(0),
        Some(code) if failure.code == TAKEN => Failure { code, ..failure },
        _ => failure,
    }
}
