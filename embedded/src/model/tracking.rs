//! Client-side caching: CLIENT TRACKING, CLIENT CACHING, and the pushes that tell of changed keys.
//!
//! Layer: sans-IO. As on a real server, each session that read a key hears of one change; the next
//! read tracks the key again. The options are ON, OFF, OPTIN and NOLOOP.

use std::collections::BTreeMap;

use super::gate::Call;
use super::pubsub::Channels;
use super::readers::Changed;
use super::reply::Reply;
use super::session::Session;
use super::strings::SYNTAX;
use super::table::{Command, Found};
use crate::request::Args;

/// Which changes a session asked to hear of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracking {
    /// Only those of keys read after `CLIENT CACHING YES`.
    opt_in: bool,
    /// Not its own changes.
    no_loop: bool,
}

/// The sessions that hear of changes.
#[derive(Debug, Default)]
pub(crate) struct Trackers {
    sessions: BTreeMap<u64, Tracker>,
}

#[derive(Debug)]
struct Tracker {
    tracking: Tracking,
    resp3: bool,
}

impl Trackers {
    /// A session has ended, or turns tracking off.
    pub(crate) fn leave(&mut self, session: &mut Session) {
        session.tracking = None;
        session.caching = false;
        self.sessions.remove(&session.id);
    }

    /// A session uses another protocol from now on.
    pub(crate) fn speak(&mut self, session: u64, resp3: bool) {
        if let Some(tracker) = self.sessions.get_mut(&session) {
            tracker.resp3 = resp3;
        }
    }

    /// Tells the tracking sessions what has changed; `by` is the session whose command it was. For
    /// `own`, the session that runs now, the push goes into its reply stream.
    pub(crate) fn tell(
        &self,
        changed: &Changed,
        by: Option<u64>,
        mut own: Option<(u64, &mut Vec<u8>)>,
        channels: &mut Channels,
    ) {
        let mut tell = |id: u64| match &mut own {
            Some((own_id, out)) if *own_id == id => append_push(out, changed),
            Some(_) | None => {
                let mut bytes = Vec::new();
                append_push(&mut bytes, changed);
                channels.deliver(id, bytes);
            }
        };
        match changed {
            Changed::Key { readers, .. } => {
                for id in readers {
                    if let Some(tracker) = self.sessions.get(id)
                        && tracker.resp3
                        && !(tracker.tracking.no_loop && by == Some(*id))
                    {
                        tell(*id);
                    }
                }
            }
            // RESP2 has no pushes. NOLOOP does not apply here.
            Changed::All => self
                .sessions
                .iter()
                .filter(|(_, tracker)| tracker.resp3)
                .for_each(|(id, _)| tell(*id)),
        }
    }
}

fn append_push(out: &mut Vec<u8>, changed: &Changed) {
    let mut reply = Reply::new(out, true);
    reply.push(2);
    reply.text("invalidate");
    match changed {
        Changed::Key { key, .. } => {
            reply.array(1);
            reply.bulk(key);
        }
        Changed::All => reply.null(),
    }
}

/// The session has read a key: it hears of the next change, if it asked to.
pub(super) fn note_read(call: &mut Call<'_>, key: &[u8]) {
    let Some(tracking) = call.session.tracking else { return };
    if !tracking.opt_in || call.session.caching {
        call.server.keys.readers.note_read(key, call.session.id);
    }
}

/// As [`note_read`], for a command of the table.
pub(super) fn note_reads(call: &mut Call<'_>, command: &Command) {
    // Of the commands with several keys only EXISTS reads.
    let len = match command.name {
        "get" | "pttl" | "ttl" | "type" => 1,
        "exists" => usize::MAX,
        _ => return,
    };
    for key in call.args.from(1).take(len) {
        note_read(call, key);
    }
}

/// `CLIENT CACHING YES` holds for the next command.
pub(super) fn end_caching(session: &mut Session, found: &Found) {
    let is_of_client =
        matches!(found, Found::Command(command) if command.name.starts_with("client|"));
    if !is_of_client {
        session.caching = false;
    }
}

/// `CLIENT TRACKING ON | OFF [OPTIN] [NOLOOP]`
pub(super) fn client_tracking(call: &mut Call<'_>) {
    let Some((is_on, tracking)) = options(call.args) else { return call.reply().error(SYNTAX) };
    if is_on {
        let resp3 = call.session.resp3;
        call.session.tracking = Some(tracking);
        call.server.trackers.sessions.insert(call.session.id, Tracker { tracking, resp3 });
    } else {
        call.server.trackers.leave(call.session);
    }
    call.reply().ok();
}

fn options(args: Args<'_>) -> Option<(bool, Tracking)> {
    let is_on = match args.at(2) {
        how if how.eq_ignore_ascii_case(b"ON") => true,
        how if how.eq_ignore_ascii_case(b"OFF") => false,
        _ => return None,
    };
    let mut tracking = Tracking { opt_in: false, no_loop: false };
    for option in args.from(3) {
        if option.eq_ignore_ascii_case(b"OPTIN") {
            tracking.opt_in = true;
        } else if option.eq_ignore_ascii_case(b"NOLOOP") {
            tracking.no_loop = true;
        } else {
            return None;
        }
    }
    Some((is_on, tracking))
}

/// `CLIENT CACHING YES | NO`
pub(super) fn client_caching(call: &mut Call<'_>) {
    let how = call.args.at(2);
    let Some(tracking) = call.session.tracking else {
        return call.reply().error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        );
    };
    if how.eq_ignore_ascii_case(b"NO") {
        let text = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";
        return call.reply().error(text);
    }
    if !how.eq_ignore_ascii_case(b"YES") {
        return call.reply().error(SYNTAX);
    }
    if !tracking.opt_in {
        let text = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
        return call.reply().error(text);
    }
    call.session.caching = true;
    call.reply().ok();
}
