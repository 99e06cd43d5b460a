//! `redbolt run`: holds locks while a command runs.

use std::time::Duration;

use redbolt::LockOptions;

use crate::args::{Global, RunArgs, ShareArgs};
use crate::exit::{Failure, TAKEN};
use crate::lock::{options, take};
use crate::names::names;
use crate::{settings, work};

/// The TTL where none is given.
const TTL: Duration = Duration::from_secs(10);

pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    let ttl = settings::ttl(global, args.ttl, TTL);
    let grace = work::grace(ttl, args.grace)?;
    if args.fence && args.share.write {
        return Err(Failure::usage("--fence takes one lock: each slot of --write has its own"));
    }
    let keys = names(&args.keys);
    if args.fence && keys.len() > 1 {
        return Err(Failure::usage("--fence takes one KEY: fences compare within one lock only"));
    }
    if args.share.is_of_slots() && keys.len() > 1 {
        return Err(Failure::usage("--slots, --read and --write take one KEY"));
    }
    let name = args.name.clone().unwrap_or_else(|| work::name_of("run", &args.command));
    let mut session = work::session(global, "run", |config| config.client_name(name))?;
    // The error of a single attempt already tells everything.
    session.is_telling = args.wait.is_some();
    let is_quiet = args.conflict_exit_code == Some(0) && !global.json;
    let acquire = args.share.of(options(ttl, args.fence).announced());
    let locks = (&*keys, args.share.is_of_slots());
    let lease = take(&mut session, locks, acquire, args.wait);
    let lease = lease.map_err(|failure| conflict(failure, args, is_quiet))?;
    let ended = work::under(&mut session, (&keys, lease), &args.command, grace, args.max_hold);
    session.close();
    ended?.judge()
}

impl ShareArgs {
    /// Whether the lock has slots.
    const fn is_of_slots(&self) -> bool {
        self.slots.is_some() || self.read || self.write
    }

    /// `options` with the share of the lock that the command line asks for.
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
    // With --no-wait the user already knows that the command does not wait.
    let is_told = args.no_wait || args.wait.is_some();
    let failure = if is_told { failure } else { failure.hint_wait() };
    match args.conflict_exit_code {
        Some(_) if failure.code == TAKEN && is_quiet => Failure::code(0),
        Some(code) if failure.code == TAKEN => Failure { code, ..failure },
        _ => failure,
    }
}
