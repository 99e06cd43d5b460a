//! Keys of any type: DEL, PTTL, RPUSH, DBSIZE, FLUSHALL.
//!
//! Layer: sans-IO.

use super::call::Call;
use super::strings::{NOT_INTEGER, SYNTAX, WRONG_TYPE};
use crate::request::number;

/// `DEL key ..`
pub(super) fn del(call: &mut Call<'_>) {
    let (db, now_ms) = (call.session.db, call.now_ms);
    let keys = &mut call.server.keys;
    let count = call.args.from(1).filter(|key| keys.delete(db, key, now_ms)).count();
    call.reply().count(count);
}

/// `PTTL key`
pub(super) fn pttl(call: &mut Call<'_>) {
    let left = left_ms(call, call.args.at(1));
    call.reply().integer(left);
}

/// Milliseconds until the key's end; -1 without one, -2 without the key.
pub(super) fn left_ms(call: &mut Call<'_>, key: &[u8]) -> i64 {
    match call.server.keys.entry(call.session.db, key, call.now_ms) {
        None => -2,
        Some(entry) => entry.ends_at_ms.map_or(-1, |ends_at_ms| (ends_at_ms - call.now_ms).max(0)),
    }
}

/// Moves a key's end to `amount` milliseconds from now. Returns whether it did.
pub(super) fn move_end(
    call: &mut Call<'_>,
    key: &[u8],
    amount: &[u8],
) -> Result<bool, &'static str> {
    let amount_ms = number(amount).ok_or(NOT_INTEGER)?;
    let ends_at_ms = amount_ms.checked_add(call.now_ms);
    let ends_at_ms = ends_at_ms.ok_or("ERR invalid expire time in 'pexpire' command")?;
    let db = call.session.db;
    let keys = &mut call.server.keys;
    if keys.entry(db, key, call.now_ms).is_none() {
        return Ok(false);
    }
    if ends_at_ms <= call.now_ms {
        keys.remove(db, key);
    } else {
        keys.set_end(db, key, ends_at_ms);
    }
    Ok(true)
}

/// `RPUSH key item ..`: the only way to a value that is not a string.
pub(super) fn rpush(call: &mut Call<'_>) {
    let items = call.args.from(2);
    match call.server.keys.push(call.session.db, call.args.at(1), items, call.now_ms) {
        Some(len) => call.reply().count(len),
        None => call.reply().error(WRONG_TYPE),
    }
}

/// `DBSIZE`
pub(super) fn dbsize(call: &mut Call<'_>) {
    let (count, _) = call.server.keys.count(call.session.db, call.now_ms);
    call.reply().count(count);
}

/// `FLUSHALL [ASYNC | SYNC]`
pub(super) fn flushall(call: &mut Call<'_>) {
    let how = call.args.at(1);
    let known = how.eq_ignore_ascii_case(b"ASYNC") || how.eq_ignore_ascii_case(b"SYNC");
    if call.args.len() > 2 || call.args.len() == 2 && !known {
        return call.reply().error(SYNTAX);
    }
    call.server.keys.clear();
    call.reply().ok();
}
