//! Strings: GET, SET, MSETEX, and the compare-and-delete commands, with the options that Redbolt sends.
//!
//! Layer: sans-IO. The model reads options as the flavor's own parser does: it accepts the same
//! combinations, and reports errors in the same order.

use super::call::Call;
use super::flavor::Flavor;
use super::keyspace::Value;
use crate::request::{Args, number};

pub(super) const SYNTAX: &str = "ERR syntax error";
pub(super) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// `GET key`
pub(super) fn get(call: &mut Call<'_>) {
    let mut reply = super::reply::Reply::new(call.out, call.session.resp3);
    let entry = call.server.keys.entry(call.session.db, call.args.at(1), call.now_ms);
    match entry.map(|entry| &entry.value) {
        None => reply.null(),
        Some(Value::Text(text)) => reply.bulk(text),
        Some(Value::List(_)) => reply.error(WRONG_TYPE),
    }
}

/// `SET key value [NX | IFEQ v] [PX ms]`
pub(super) fn set(call: &mut Call<'_>) {
    let Some(options) = options(call.args, 3, call.server.flavor) else {
        return call.reply().error(SYNTAX);
    };
    let invalid = "ERR invalid expire time in 'set' command";
    let ends_at_ms = match options.ends_at_ms(call.now_ms, invalid) {
        Ok(ends_at_ms) => ends_at_ms,
        Err(text) => return call.reply().error(text),
    };
    match is_met(call, &options) {
        Ok(true) => {}
        Ok(false) => return call.reply().null(),
        Err(text) => return call.reply().error(text),
    }
    write(call, (call.args.at(1), call.args.at(2)), ends_at_ms);
    call.reply().ok();
}

/// `MSETEX numkeys key value .. [NX] [PX ms]`
pub(super) fn msetex(call: &mut Call<'_>) {
    let (args, flavor) = (call.args, call.server.flavor);
    let count = number(args.at(1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else {
        return call.reply().error(flavor.invalid_numkeys());
    };
    let end = count.saturating_mul(2).saturating_add(2);
    if end > args.len() {
        return call.reply().error(flavor.too_few_pairs());
    }
    let options = options(args, end, flavor).filter(|it| it.compare.is_none());
    let Some(options) = options else { return call.reply().error(SYNTAX) };
    let invalid = "ERR invalid expire time in 'msetex' command";
    let ends_at_ms = match options.ends_at_ms(call.now_ms, invalid) {
        Ok(ends_at_ms) => ends_at_ms,
        Err(text) => return call.reply().error(text),
    };
    let keys = (2..end).step_by(2);
    let (db, now_ms) = (call.session.db, call.now_ms);
    let mut exists = |at| call.server.keys.entry(db, args.at(at), now_ms).is_some();
    let is_met = !options.is_new || !keys.clone().any(&mut exists);
    if is_met {
        for at in keys {
            write(call, (args.at(at), args.at(at + 1)), ends_at_ms);
        }
    }
    call.reply().integer(i64::from(is_met));
}

/// `DELIFEQ key value`
pub(super) fn delifeq(call: &mut Call<'_>) {
    match holds(call, call.args.at(2)) {
        Some(Ok(true)) => delete(call),
        Some(Ok(false)) | None => call.reply().integer(0),
        Some(Err(text)) => call.reply().error(text),
    }
}

/// `DELEX key IFEQ value`
pub(super) fn delex(call: &mut Call<'_>) {
    if call.args.len() != 4 {
        return call.reply().error("ERR wrong number of arguments for 'delex' command");
    }
    let is_equal = match holds(call, call.args.at(3)) {
        None => return call.reply().integer(0),
        Some(Err(_)) => {
            let text = "ERR Key should be of string type if conditions are specified";
            return call.reply().error(text);
        }
        Some(Ok(is_equal)) => is_equal,
    };
    if !call.args.at(2).eq_ignore_ascii_case(b"IFEQ") {
        return call.reply().error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
    }
    if is_equal { delete(call) } else { call.reply().integer(0) }
}

/// Removes the call's key and answers how many keys it removed.
fn delete(call: &mut Call<'_>) {
    let was_there = call.server.keys.delete(call.session.db, call.args.at(1), call.now_ms);
    call.reply().integer(i64::from(was_there));
}

/// Whether the call's key holds `expected`; `None` if there is no key.
fn holds(call: &mut Call<'_>, expected: &[u8]) -> Option<Result<bool, &'static str>> {
    let entry = call.server.keys.entry(call.session.db, call.args.at(1), call.now_ms)?;
    Some(match &entry.value {
        Value::Text(text) => Ok(text == expected),
        Value::List(_) => Err(WRONG_TYPE),
    })
}

fn is_met(call: &mut Call<'_>, options: &Options<'_>) -> Result<bool, &'static str> {
    let entry = call.server.keys.entry(call.session.db, call.args.at(1), call.now_ms);
    if options.is_new && entry.is_some() {
        return Ok(false);
    }
    // A missing key differs from every value.
    let Some(value) = options.compare else { return Ok(true) };
    Ok(holds(call, value).transpose()?.unwrap_or(false))
}

fn write(call: &mut Call<'_>, (key, text): (&[u8], &[u8]), ends_at_ms: Option<i64>) {
    call.server.keys.set(call.session.db, key, text, ends_at_ms, call.now_ms);
}

#[derive(Default)]
struct Options<'a> {
    /// NX: no key is there.
    is_new: bool,
    /// IFEQ: the key has this value.
    compare: Option<&'a [u8]>,
    /// PX.
    amount: Option<&'a [u8]>,
}

impl Options<'_> {
    /// When the key ends.
    fn ends_at_ms(&self, now_ms: i64, invalid: &'static str) -> Result<Option<i64>, &'static str> {
        let Some(amount) = self.amount else { return Ok(None) };
        let amount_ms = number(amount).ok_or(NOT_INTEGER)?;
        let ends_at_ms = amount_ms.checked_add(now_ms).filter(|_| amount_ms > 0);
        ends_at_ms.ok_or(invalid).map(Some)
    }
}

/// Reads the options from this argument on; `None` is a syntax error.
fn options(args: Args<'_>, from: usize, flavor: Flavor) -> Option<Options<'_>> {
    let takes_both = flavor == Flavor::Redis86;
    let has_compare = !matches!(flavor, Flavor::Redis70 | Flavor::Redis80);
    let mut options = Options::default();
    let mut index = from;
    while let Some(option) = args.get(index) {
        let next = args.get(index + 1);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("NX") && (options.compare.is_none() || takes_both) {
            options.is_new = true;
        } else if is("IFEQ") && has_compare {
            let may_compare = options.compare.is_none() || takes_both;
            (may_compare && !options.is_new).then_some(())?;
            options.compare = Some(next?);
            index += 1;
        } else if is("PX") {
            options.amount = Some(next?);
            index += 1;
        } else {
            return None;
        }
        index += 1;
    }
    Some(options)
}
