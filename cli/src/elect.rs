//! `redbolt elect`: runs a command while this candidate leads an election.
//!
//! # Invariants
//!
//! - A term is a lock. The command runs under it as under a lock of `redbolt run`, and has ended
//!   before this process campaigns again.

use redbolt::Lease;

use crate::args::{ElectArgs, Global};
use crate::duration::FOREVER;
use crate::exit::Failure;
use crate::lock::{options, waiting};
use crate::output::{note, shown};
use crate::session::Session;
use crate::settings::PROGRAM;
use crate::work;

pub(crate) fn run(global: &Global, args: &ElectArgs) -> Result<(), Failure> {
    let grace = work::grace(args.ttl, args.grace)?;
    let who = args.name.as_deref().unwrap_or(PROGRAM);
    let mut session = work::session(global, "elect", |config| config.client_name(who))?;
    let name = shown(&args.election.0);
    loop {
        session.is_telling = true;
        let term = campaign(&mut session, args)?;
        note(format_args!("leads {name} as {who}"));
        let ended = work::under(&mut session, vec![term], &args.command, grace, None)?;
        if !ended.is_lost_alone() {
            session.close();
            return ended.judge();
        }
        let why = ended.why_lost();
        note(format_args!("no longer leads {name} as {who}: {why}; waits to lead again"));
    }
}

/// Waits until this candidate leads.
fn campaign(session: &mut Session, args: &ElectArgs) -> Result<Lease, Failure> {
    let key = &args.election.0;
    let _waiting = waiting(session, key, Some(FOREVER));
    session.lock(key, options(args.ttl, args.fence).announced(), Some(FOREVER))
}
