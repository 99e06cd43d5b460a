//! Transactions: WATCH, MULTI, EXEC, DISCARD.
//!
//! Layer: sans-IO. Watches belong to the whole connection and every EXEC clears all of them.

use super::gate::Call;
use super::reply::Reply;
use super::server::Server;
use super::session::{Queue, Session};
use super::table::{self, Found};

impl Server {
    /// Ends all watches of a session.
    pub(crate) fn unwatch(&mut self, session: &mut Session) {
        for watch in session.watches.drain(..) {
            self.keys.unwatch(watch);
        }
    }
}

/// `WATCH key ..`
pub(super) fn watch(call: &mut Call<'_>) {
    if call.session.queue.is_some() {
        return call.reply().error("ERR WATCH inside MULTI is not allowed");
    }
    for key in call.args.from(1) {
        let (db, now_ms) = (call.session.db, call.now_ms);
        // A key that is watched already keeps the version it had then.
        if !call.session.watches.iter().any(|watch| watch.is_of(db, key)) {
            call.session.watches.push(call.server.keys.watch(db, key, now_ms));
        }
    }
    call.reply().ok();
}

/// `UNWATCH`
pub(super) fn unwatch(call: &mut Call<'_>) {
    call.server.unwatch(call.session);
    call.reply().ok();
}

/// `MULTI`
pub(super) fn multi(call: &mut Call<'_>) {
    if call.session.queue.is_some() {
        return call.reply().error("ERR MULTI calls can not be nested");
    }
    call.session.queue = Some(Queue::default());
    call.reply().ok();
}

/// `DISCARD`
pub(super) fn discard(call: &mut Call<'_>) {
    if call.session.queue.take().is_none() {
        return call.reply().error("ERR DISCARD without MULTI");
    }
    call.server.unwatch(call.session);
    call.reply().ok();
}

/// `EXEC`
pub(super) fn exec(call: &mut Call<'_>) {
    let Some(queue) = call.session.queue.take() else {
        return call.reply().error("ERR EXEC without MULTI");
    };
    let (keys, now_ms) = (&mut call.server.keys, call.now_ms);
    let changed = call.session.watches.iter().any(|watch| keys.is_changed(watch, now_ms));
    call.server.unwatch(call.session);
    if queue.failed {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return call.reply().error(text);
    }
    if changed {
        return call.reply().null_array();
    }
    call.reply().array(queue.commands.len());
    for command in &queue.commands {
        let args = command.args();
        match table::find(args, call.server.flavor) {
            Found::Command(command) => {
                let (server, session) = (&mut *call.server, &mut *call.session);
                Call { server, session, args, out: call.out, now_ms }.run(command);
            }
            // It was found when it was queued, and the table does not change.
            Found::Missing(text) => Reply::new(call.out, call.session.resp3).error_bytes(&text),
        }
    }
}
