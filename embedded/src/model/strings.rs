//! Strings: GET, SET, MSETEX, and the compare-and-delete commands. SET lacks IFDEQ and IFDNE.
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
    answer_value(call);
}

/// `SET key value [NX | XX | IFEQ v | IFNE v] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`
pub(super) fn set(call: &mut Call<'_>) {
    let Some(options) = options(call.args, 3, call.server.flavor) else {
        return call.reply().error(SYNTAX);
    };
    let invalid = "ERR invalid expire time in 'set' command";
    let ends_at_ms = options.end.map(|end| end.ends_at_ms(call.now_ms, invalid));
    let ends_at_ms = match ends_at_ms.transpose() {
        Ok(ends_at_ms) => ends_at_ms,
        Err(text) => return call.reply().error(text),
    };
    // With GET the old value is the answer, whether or not the command writes.
    if options.get && !answer_value(call) {
        return;
    }
    match is_met(call, &options) {
        Ok(true) => {}
        Ok(false) => {
            if !options.get {
                call.reply().null();
            }
            return;
        }
        Err(text) => return call.reply().error(text),
    }
    let (key, text) = (call.args.at(1), call.args.at(2));
    write(call, (key, text), &options, ends_at_ms);
    if !options.get {
        call.reply().ok();
    }
}

/// `MSETEX numkeys key value .. [NX | XX] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`
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
    let options = options(args, end, flavor).filter(|it| !it.get && it.compare.is_none());
    let Some(options) = options else { return call.reply().error(SYNTAX) };
    let invalid = "ERR invalid expire time in 'msetex' command";
    let ends_at_ms = options.end.map(|end| end.ends_at_ms(call.now_ms, invalid));
    let ends_at_ms = match ends_at_ms.transpose() {
        Ok(ends_at_ms) => ends_at_ms,
        Err(text) => return call.reply().error(text),
    };
    let keys = (2..end).step_by(2);
    let is_met = options.exists.is_none_or(|wanted| {
        let (db, now_ms) = (call.session.db, call.now_ms);
        let mut exists = |at| call.server.keys.entry(db, args.at(at), now_ms).is_some();
        keys.clone().all(|at| exists(at) == wanted)
    });
    if is_met {
        for at in keys {
            write(call, (args.at(at), args.at(at + 1)), &options, ends_at_ms);
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

/// `DELEX key [IFEQ value | IFNE value]`
pub(super) fn delex(call: &mut Call<'_>) {
    if call.args.len() == 2 {
        return delete(call);
    }
    if call.args.len() != 4 {
        return call.reply().error("ERR wrong number of arguments for 'delex' command");
    }
    let (condition, expected) = (call.args.at(2), call.args.at(3));
    let equal = match holds(call, expected) {
        None => return call.reply().integer(0),
        Some(Err(_)) => {
            let text = "ERR Key should be of string type if conditions are specified";
            return call.reply().error(text);
        }
        Some(Ok(equal)) => equal,
    };
    let met = if condition.eq_ignore_ascii_case(b"IFEQ") {
        equal
    } else if condition.eq_ignore_ascii_case(b"IFNE") {
        !equal
    } else {
        return call.reply().error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
    };
    if met { delete(call) } else { call.reply().integer(0) }
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

/// Answers with the value of the call's key; false if the answer was an error.
fn answer_value(call: &mut Call<'_>) -> bool {
    let mut reply = super::reply::Reply::new(call.out, call.session.resp3);
    let entry = call.server.keys.entry(call.session.db, call.args.at(1), call.now_ms);
    match entry.map(|entry| &entry.value) {
        None => reply.null(),
        Some(Value::Text(text)) => reply.bulk(text),
        Some(Value::List(_)) => {
            reply.error(WRONG_TYPE);
            return false;
        }
    }
    true
}

fn is_met(call: &mut Call<'_>, options: &Options<'_>) -> Result<bool, &'static str> {
    let entry = call.server.keys.entry(call.session.db, call.args.at(1), call.now_ms);
    let exists = entry.is_some();
    if options.exists.is_some_and(|wanted| wanted != exists) {
        return Ok(false);
    }
    let Some(compare) = options.compare else {
        return Ok(true);
    };
    // A missing key differs from every value.
    let equal = holds(call, compare.value).transpose()?.unwrap_or(false);
    Ok(equal == compare.equal)
}

fn write(
    call: &mut Call<'_>,
    (key, text): (&[u8], &[u8]),
    options: &Options<'_>,
    ends_at_ms: Option<i64>,
) {
    let db = call.session.db;
    let keys = &mut call.server.keys;
    let old_end = |keys: &mut super::keyspace::Keyspace| {
        keys.entry(db, key, call.now_ms).and_then(|entry| entry.ends_at_ms)
    };
    let ends_at_ms = if options.keep_end { old_end(keys) } else { ends_at_ms };
    // If the end is in the past, the answer is OK, and no key is left.
    let is_over = ends_at_ms.is_some_and(|ends_at_ms| ends_at_ms <= call.now_ms);
    let writes_first = match call.server.flavor {
        Flavor::Redis70 | Flavor::Redis80 | Flavor::Redis86 => true,
        Flavor::Valkey81 | Flavor::Valkey91 => false,
    };
    if writes_first || !is_over {
        keys.set(db, key, text, ends_at_ms, call.now_ms);
    }
    if is_over {
        keys.remove(db, key);
    }
}

#[derive(Default)]
struct Options<'a> {
    /// NX: must not exist; XX: must exist.
    exists: Option<bool>,
    compare: Option<Compare<'a>>,
    get: bool,
    keep_end: bool,
    end: Option<End<'a>>,
}

#[derive(Clone, Copy)]
struct Compare<'a> {
    value: &'a [u8],
    /// IFEQ or IFNE.
    equal: bool,
}

#[derive(Clone, Copy)]
struct End<'a> {
    kind: EndKind,
    amount: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EndKind {
    Ex,
    Px,
    ExAt,
    PxAt,
}

impl End<'_> {
    /// The absolute end, in milliseconds.
    fn ends_at_ms(self, now_ms: i64, invalid: &'static str) -> Result<i64, &'static str> {
        let amount = number(self.amount).ok_or(NOT_INTEGER)?;
        if amount <= 0 {
            return Err(invalid);
        }
        let amount_ms = match self.kind {
            EndKind::Ex | EndKind::ExAt => amount.checked_mul(1000).ok_or(invalid)?,
            EndKind::Px | EndKind::PxAt => amount,
        };
        match self.kind {
            EndKind::Ex | EndKind::Px => amount_ms.checked_add(now_ms).ok_or(invalid),
            EndKind::ExAt | EndKind::PxAt => Ok(amount_ms),
        }
    }
}

/// Reads the options from this argument on; `None` is a syntax error.
fn options(args: Args<'_>, from: usize, flavor: Flavor) -> Option<Options<'_>> {
    let mut options = Options::default();
    let mut index = from;
    while let Some(option) = args.get(index) {
        let next = args.get(index + 1);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("NX") && options.takes_existence(false, flavor) {
            options.exists = Some(false);
        } else if is("XX") && options.takes_existence(true, flavor) {
            options.exists = Some(true);
        } else if is("GET") {
            options.get = true;
        } else if is("KEEPTTL") && options.end.is_none() {
            options.keep_end = true;
        } else if let Some(equal) = compare_kind(option, flavor) {
            options.takes_compare(equal, flavor).then_some(())?;
            options.compare = Some(Compare { value: next?, equal });
            index += 1;
        } else {
            let kind = end_kind(option).filter(|kind| options.takes_end(*kind))?;
            options.end = Some(End { kind, amount: next? });
            index += 1;
        }
        index += 1;
    }
    Some(options)
}

impl Options<'_> {
    fn takes_existence(&self, wanted: bool, flavor: Flavor) -> bool {
        let compare = self.compare.is_none() || flavor == Flavor::Redis86;
        compare && self.exists.is_none_or(|exists| exists == wanted)
    }

    fn takes_compare(&self, equal: bool, flavor: Flavor) -> bool {
        let repeated = match self.compare {
            None => true,
            Some(compare) => flavor == Flavor::Redis86 && compare.equal == equal,
        };
        repeated && self.exists.is_none()
    }

    fn takes_end(&self, kind: EndKind) -> bool {
        !self.keep_end && self.end.is_none_or(|end| end.kind == kind)
    }
}

fn compare_kind(option: &[u8], flavor: Flavor) -> Option<bool> {
    match flavor {
        Flavor::Redis70 | Flavor::Redis80 => None,
        Flavor::Valkey81 | Flavor::Valkey91 => option.eq_ignore_ascii_case(b"IFEQ").then_some(true),
        Flavor::Redis86 => {
            let equal = option.eq_ignore_ascii_case(b"IFEQ");
            (equal || option.eq_ignore_ascii_case(b"IFNE")).then_some(equal)
        }
    }
}

fn end_kind(option: &[u8]) -> Option<EndKind> {
    let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
    match () {
        () if is("EX") => Some(EndKind::Ex),
        () if is("PX") => Some(EndKind::Px),
        () if is("EXAT") => Some(EndKind::ExAt),
        () if is("PXAT") => Some(EndKind::PxAt),
        () => None,
    }
}
