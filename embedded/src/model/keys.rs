//! Keys of any type: DEL, EXISTS, TTL, PEXPIRE, TYPE, RPUSH, DBSIZE, FLUSHALL.
//!
//! Layer: sans-IO.

use super::call::Call;
use super::keyspace::Value;
use super::strings::{NOT_INTEGER, SYNTAX, WRONG_TYPE};
use crate::request::{Args, number};

/// `DEL key ..`, `UNLINK key ..`
pub(super) fn del(call: &mut Call<'_>) {
    let (db, now_ms) = (call.session.db, call.now_ms);
    let keys = &mut call.server.keys;
    let count = call.args.from(1).filter(|key| keys.delete(db, key, now_ms)).count();
    call.reply().count(count);
}

/// `EXISTS key ..`
pub(super) fn exists(call: &mut Call<'_>) {
    let (db, now_ms) = (call.session.db, call.now_ms);
    let keys = &mut call.server.keys;
    let count = call.args.from(1).filter(|key| keys.entry(db, key, now_ms).is_some()).count();
    call.reply().count(count);
}

/// `PTTL key`
pub(super) fn pttl(call: &mut Call<'_>) {
    let left = left_ms(call, call.args.at(1));
    call.reply().integer(left);
}

/// `TTL key`
pub(super) fn ttl(call: &mut Call<'_>) {
    let left = left_ms(call, call.args.at(1));
    call.reply().integer(if left < 0 { left } else { left.saturating_add(500) / 1000 });
}

/// Milliseconds until the key's end; -1 without one, -2 without the key.
pub(super) fn left_ms(call: &mut Call<'_>, key: &[u8]) -> i64 {
    match call.server.keys.entry(call.session.db, key, call.now_ms) {
        None => -2,
        Some(entry) => entry.ends_at_ms.map_or(-1, |ends_at_ms| (ends_at_ms - call.now_ms).max(0)),
    }
}

/// `PEXPIRE key ms [NX | XX | GT | LT]`
pub(super) fn pexpire(call: &mut Call<'_>) {
    let when = match When::read(call.args) {
        Ok(when) => when,
        Err(text) => return call.reply().error_bytes(&text),
    };
    let answer = move_end(call, call.args.at(1), call.args.at(2), when);
    match answer {
        Ok(moved) => call.reply().integer(i64::from(moved)),
        Err(text) => call.reply().error(text),
    }
}

/// Moves a key's end to `amount` milliseconds from now. Returns whether it did.
pub(super) fn move_end(
    call: &mut Call<'_>,
    key: &[u8],
    amount: &[u8],
    when: When,
) -> Result<bool, &'static str> {
    let amount_ms = number(amount).ok_or(NOT_INTEGER)?;
    let ends_at_ms = amount_ms.checked_add(call.now_ms);
    let ends_at_ms = ends_at_ms.ok_or("ERR invalid expire time in 'pexpire' command")?;
    let db = call.session.db;
    let keys = &mut call.server.keys;
    let Some(entry) = keys.entry(db, key, call.now_ms) else {
        return Ok(false);
    };
    if !when.allows(entry.ends_at_ms, ends_at_ms) {
        return Ok(false);
    }
    if ends_at_ms <= call.now_ms {
        keys.remove(db, key);
    } else {
        keys.set_end(db, key, ends_at_ms);
    }
    Ok(true)
}

/// The condition for moving an end.
#[derive(Clone, Copy, Default)]
pub(super) struct When {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl When {
    fn read(args: Args<'_>) -> Result<Self, Vec<u8>> {
        let mut when = Self::default();
        for option in args.from(3) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            match () {
                () if is("NX") => when.nx = true,
                () if is("XX") => when.xx = true,
                () if is("GT") => when.gt = true,
                () if is("LT") => when.lt = true,
                () => {
                    let option = super::reply::printed(option, option.len());
                    return Err([b"ERR Unsupported option ", option].concat());
                }
            }
        }
        if when.nx && (when.xx || when.gt || when.lt) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(text.into());
        }
        if when.gt && when.lt {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(when)
    }

    /// A key without an end counts as ending last.
    fn allows(self, current_ms: Option<i64>, ends_at_ms: i64) -> bool {
        !(self.nx && current_ms.is_some()
            || self.xx && current_ms.is_none()
            || self.gt && current_ms.is_none_or(|current_ms| ends_at_ms <= current_ms)
            || self.lt && current_ms.is_some_and(|current_ms| ends_at_ms >= current_ms))
    }
}

/// `TYPE key`
pub(super) fn kind(call: &mut Call<'_>) {
    let entry = call.server.keys.entry(call.session.db, call.args.at(1), call.now_ms);
    let kind = match entry.map(|entry| &entry.value) {
        None => "none",
        Some(Value::Text(_)) => "string",
        Some(Value::List(_)) => "list",
    };
    call.reply().simple(kind);
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
    flush(call, None);
}

/// `FLUSHDB [ASYNC | SYNC]`
pub(super) fn flushdb(call: &mut Call<'_>) {
    flush(call, Some(call.session.db));
}

fn flush(call: &mut Call<'_>, only: Option<usize>) {
    let how = call.args.at(1);
    let known = how.eq_ignore_ascii_case(b"ASYNC") || how.eq_ignore_ascii_case(b"SYNC");
    if call.args.len() > 2 || call.args.len() == 2 && !known {
        return call.reply().error(SYNTAX);
    }
    call.server.keys.clear(only);
    call.reply().ok();
}
