//! `redbolt elect`: runs a command while this candidate leads an election.
//!
//! # Invariants
//!
//! - A term is a lock. The command runs under it as under a lock of `redbolt run`, and has ended
//!   before this process campaigns again.

use std::time::Duration;

use redbolt::Lease;

use crate::args::{ElectArgs, Global};
use crate::duration::FOREVER;
use crate::exit::Failure;
use crate::lock::options;
use crate::output::{note, shown};
use crate::session::Session;
use crate::waiting::Waiting;
use crate::{settings, work};

/// The default TTL. After the death of a leader, another leads within this time.
const TTL: Duration = Duration::from_secs(3);

pub(crate) fn run(global: &Global, args: &ElectArgs) -> Result<(), Failure> {
    let ttl = settings::ttl(global, args.ttl, TTL);
    let grace = work::grace(ttl, args.grace)?;
    let who = args.name.clone().unwrap_or_else(|| work::name_of("elect", &args.command));
    let mut session = work::session(global, "elect", |config| config.client_name(&*who))?;
    let name = shown(&args.election.0);
    loop {
        session.is_telling = true;
        let term = campaign(&mut session, args, ttl)?;
        note(format_args!("leads {name} as {who}"));
        let ended =
            work::under(&mut session, (&[&args.election.0], term), &args.command, grace, None)?;
        if !ended.is_lost_alone() {
            session.close();
            return ended.judge();
        }
        let why = ended.why_lost();
        note(format_args!("no longer leads {name} as {who}: {why}; waits to lead again"));
    }
}

/// Waits until this candidate leads.
fn campaign(session: &mut Session, args: &ElectArgs, ttl: Duration) -> Result<Lease, Failure> {
    let key = &args.election.0;
    let _waiting = Waiting::start(&session.config, &[key], false, FOREVER);
    session.lock(&[key], options(ttl, args.fence).announced(), Some(FOREVER))
}
