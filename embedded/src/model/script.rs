//! Scripts: the model recognises Redbolt's scripts by their text.
//!
//! Layer: sans-IO. There is no Lua here; the model refuses any other script with a plain error.

use super::call::Call;
use super::flavor::Flavor;
use super::keys::{left_ms, move_end};
use super::keyspace::Value;
use super::pubsub;
use super::strings::{NOT_INTEGER, WRONG_TYPE};
use crate::request::{Args, number};

/// A script that this node can run.
struct Known {
    does: Does,
    text: &'static str,
    /// SHA-1 of the text, by which errors name the script.
    sha1: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Release,
    Extend,
    /// Takes a lock, and raises the counter of its fences.
    Acquire,
    /// Takes the first of several locks that is free.
    TakeFirst,
    /// Raises the counter of a lock that is held.
    Raise,
    /// Hands a lock over to a waiter that hears of it; deletes the lock if no waiter does.
    Transfer,
    /// Returns the holder of the lock, and tells that client of a waiter.
    Introduce,
}

const KNOWN: [Known; 7] = [
    Known {
        does: Does::Release,
        text: "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) \
               else return 0 end",
        sha1: "ae3671744a5dbb24ea37ef607b8b10ac7856d43e",
    },
    Known {
        does: Does::Extend,
        text: "if redis.call('get',KEYS[1]) == ARGV[1] then return \
               redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end",
        sha1: "0be193f9697b4b30826e1bc553c0064e0e04668c",
    },
    Known {
        does: Does::Acquire,
        text: "local s=redis.call('get',KEYS[2]) or '0' local c=tonumber(s) \
               if not(c and c>=0 and c<9007199254740991) then \
               return redis.error_reply('FENCE counter') end \
               if not redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return 0 end \
               if c<tonumber(ARGV[3]) then redis.call('set',KEYS[2],ARGV[3],'PX',ARGV[4]) \
               return 1 end return s",
        sha1: "a87ec9b0648fb49b7692a68d969779d86d84c6a6",
    },
    Known {
        does: Does::TakeFirst,
        text: "for i=1,#KEYS do if redis.call('set',KEYS[i],ARGV[i],'NX','PX',ARGV[#KEYS+1]) \
               then return tostring(i) end end return 0",
        sha1: "75e6980912d7090e989df777caa8d700413bb594",
    },
    Known {
        does: Does::Raise,
        text: "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
               local s=redis.call('get',KEYS[2]) or '0' local c=tonumber(s) \
               if not(c and c>=0 and c<9007199254740991) then \
               return redis.error_reply('FENCE counter') end \
               if c<tonumber(ARGV[2]) then redis.call('set',KEYS[2],ARGV[2],'PX',ARGV[3]) \
               return 1 end return s",
        sha1: "8650c930ebaa7e619e7a42ce42e1cf76aa5d953a",
    },
    Known {
        does: Does::Transfer,
        text: "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
               redis.call('del',KEYS[1]) \
               local s=redis.pcall('set',KEYS[1],ARGV[2],'PX',ARGV[3]) \
               if type(s)=='table' and s.ok then \
               local n=redis.pcall('publish',ARGV[4],ARGV[5]) \
               if type(n)=='number' and n>0 then return 2 end \
               redis.call('del',KEYS[1]) end return 1",
        sha1: "08b5cbf20887b6fb60f14c38e58ae038919e426a",
    },
    Known {
        does: Does::Introduce,
        text: "local h=redis.pcall('get',KEYS[1]) if not h or h==ARGV[1] then return false end \
               local n=0 if type(h)~='string' then h='' \
               elseif #h==40 and not h:find('[^0-9a-f]') then \
               n=redis.pcall('publish',ARGV[2]..h:sub(1,16),ARGV[3]..h:gsub('..',function(b) \
               return string.char(tonumber(b,16)) end)..ARGV[4]) \
               if type(n)~='number' then n=0 end end return {h,redis.call('pttl',KEYS[1]),n}",
        sha1: "4ea16b2a9210315ed7561b346345b0b2c926b4cd",
    },
];

const UNKNOWN: &str = "ERR an embedded node has no Lua: it knows only the scripts of Redbolt";

/// `EVAL script numkeys key .. arg ..`
pub(super) fn eval(call: &mut Call<'_>) {
    let keys_len = match keys_len(call.args) {
        Ok(keys_len) => keys_len,
        Err(text) => return call.reply().error(text),
    };
    let text = call.args.at(1);
    match KNOWN.iter().find(|known| known.text.as_bytes() == text) {
        Some(known) => run(call, known, keys_len),
        None => call.reply().error(UNKNOWN),
    }
}

fn keys_len(args: Args<'_>) -> Result<usize, &'static str> {
    let count = number(args.at(2)).ok_or(NOT_INTEGER)?;
    let room = i64::try_from(args.len() - 3).unwrap_or(i64::MAX);
    if count > room {
        return Err("ERR Number of keys can't be greater than number of args");
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")
}

/// The result of a script.
enum Answer {
    Integer(i64),
    Text(Vec<u8>),
    Null,
    Holder {
        token: Vec<u8>,
        remaining: i64,
        told: i64,
    },
    /// An error from the script itself.
    Error(&'static str),
}

/// Runs a script and writes its answer. An error of a command inside names the script.
fn run(call: &mut Call<'_>, known: &Known, keys_len: usize) {
    match answer(call, known.does, keys_len) {
        Ok(Answer::Integer(answer)) => call.reply().integer(answer),
        Ok(Answer::Text(text)) => call.reply().bulk(&text),
        Ok(Answer::Null) => call.reply().null(),
        Ok(Answer::Holder { token, remaining, told }) => {
            call.reply().array(3);
            call.reply().bulk(&token);
            call.reply().integer(remaining);
            call.reply().integer(told);
        }
        Ok(Answer::Error(text)) => call.reply().error(text),
        Err(text) => {
            let sha1 = known.sha1;
            let place = match call.server.flavor {
                Flavor::Valkey91 => " script: on @user_script:1.".to_owned(),
                Flavor::Redis70 | Flavor::Redis80 | Flavor::Redis86 | Flavor::Valkey81 => {
                    format!(" script: {sha1}, on @user_script:1.")
                }
            };
            call.reply().error(&(text + &place));
        }
    }
}

fn answer(call: &mut Call<'_>, does: Does, keys_len: usize) -> Result<Answer, String> {
    match does {
        Does::Release | Does::Extend => {
            let done = compare_then(call, does == Does::Release, keys_len)?;
            Ok(Answer::Integer(i64::from(done)))
        }
        Does::Acquire => acquire(call, keys_len),
        Does::TakeFirst => take_first(call, keys_len),
        Does::Raise => raise(call, keys_len),
        Does::Transfer => transfer(call, keys_len),
        Does::Introduce => introduce(call, keys_len),
    }
}

/// The `number`-th key of the script.
fn key<'a>(call: &Call<'a>, keys_len: usize, number: usize) -> Result<&'a [u8], String> {
    let key = if number < keys_len { call.args.get(3 + number) } else { None };
    key.ok_or_else(|| call.server.flavor.script_argument().to_owned())
}

/// The `number`-th argument of the script.
fn argument<'a>(call: &Call<'a>, keys_len: usize, number: usize) -> Result<&'a [u8], String> {
    let argument = call.args.get(3 + keys_len + number);
    argument.ok_or_else(|| call.server.flavor.script_argument().to_owned())
}

/// `GET` inside a script.
fn read(call: &mut Call<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
    allowed(call, "get")?;
    let entry = call.server.keys.entry(call.session.db, key, call.now_ms);
    match entry.map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.clone())),
        Some(Value::List(_)) => Err(WRONG_TYPE.to_owned()),
    }
}

/// The end of a key that a script sets with `PX`. Real servers check the number before they look at
/// the key.
fn end(call: &Call<'_>, px: &[u8]) -> Result<i64, String> {
    let px = number(px).ok_or_else(|| NOT_INTEGER.to_owned())?;
    let end = call.now_ms.checked_add(px).filter(|_| px > 0);
    end.ok_or_else(|| "ERR invalid expire time in 'set' command".to_owned())
}

/// The error of a write inside a script, if the server would refuse it.
fn may_write(call: &Call<'_>, command: &str) -> Result<(), String> {
    allowed(call, command)?;
    if let Some(refusal) = call.server.write_refusal() {
        return Err(refusal);
    }
    // DEL and PEXPIRE need no memory.
    if command == "set" && call.server.state.oom {
        return Err("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
    }
    Ok(())
}

/// The text of a counter and its value, which Lua keeps as a double.
fn counter(call: &mut Call<'_>, key: &[u8]) -> Result<Option<(Vec<u8>, f64)>, String> {
    let text = read(call, key)?.unwrap_or_else(|| b"0".to_vec());
    let value = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    let value = value.filter(|value| (0.0..COUNTER_END).contains(value));
    Ok(value.map(|value| (text, value)))
}

const COUNTER_END: f64 = 9_007_199_254_740_991.0;
const BAD_COUNTER: Answer = Answer::Error("FENCE counter");

fn acquire(call: &mut Call<'_>, keys_len: usize) -> Result<Answer, String> {
    let (lock, fence) = (key(call, keys_len, 0)?, key(call, keys_len, 1)?);
    let Some(counter) = counter(call, fence)? else { return Ok(BAD_COUNTER) };
    let token = argument(call, keys_len, 0)?;
    let px = argument(call, keys_len, 1)?;
    may_write(call, "set")?;
    let ends_at_ms = end(call, px)?;
    let (db, now_ms) = (call.session.db, call.now_ms);
    if call.server.keys.entry(db, lock, now_ms).is_some() {
        return Ok(Answer::Integer(0));
    }
    call.server.keys.set(db, lock, token, Some(ends_at_ms), now_ms);
    // The server no longer refuses a script that has written.
    accept(call, fence, counter, 3 + keys_len + 2, false)
}

fn take_first(call: &mut Call<'_>, keys_len: usize) -> Result<Answer, String> {
    let (db, now_ms) = (call.session.db, call.now_ms);
    for number in 0..keys_len {
        let (lock, token) = (key(call, keys_len, number)?, argument(call, keys_len, number)?);
        let px = argument(call, keys_len, keys_len)?;
        may_write(call, "set")?;
        let ends_at_ms = end(call, px)?;
        if call.server.keys.entry(db, lock, now_ms).is_none() {
            call.server.keys.set(db, lock, token, Some(ends_at_ms), now_ms);
            return Ok(Answer::Text((number + 1).to_string().into_bytes()));
        }
    }
    Ok(Answer::Integer(0))
}

fn raise(call: &mut Call<'_>, keys_len: usize) -> Result<Answer, String> {
    let lock = key(call, keys_len, 0)?;
    if !is_held(call, lock, keys_len)? {
        return Ok(Answer::Integer(0));
    }
    let fence = key(call, keys_len, 1)?;
    let Some(counter) = counter(call, fence)? else { return Ok(BAD_COUNTER) };
    accept(call, fence, counter, 3 + keys_len + 1, true)
}

/// Raises a counter to the number in the arguments, if that is higher.
fn accept(
    call: &mut Call<'_>,
    key: &[u8],
    (text, counter): (Vec<u8>, f64),
    at: usize,
    is_first_write: bool,
) -> Result<Answer, String> {
    let proposed = call.args.get(at).unwrap_or_default();
    let value = std::str::from_utf8(proposed).ok().and_then(|text| text.trim().parse::<f64>().ok());
    if value.is_some_and(|value| counter < value) {
        if is_first_write {
            may_write(call, "set")?;
        }
        let px = argument(call, at - 3, 1)?;
        let (db, now_ms, ends_at_ms) = (call.session.db, call.now_ms, end(call, px)?);
        call.server.keys.set(db, key, proposed, Some(ends_at_ms), now_ms);
        return Ok(Answer::Integer(1));
    }
    Ok(Answer::Text(text))
}

/// A refused GET or first DEL is an error. If the server refuses a `redis.pcall`, the script
/// deletes the lock.
fn transfer(call: &mut Call<'_>, keys_len: usize) -> Result<Answer, String> {
    let lock = key(call, keys_len, 0)?;
    if !is_held(call, lock, keys_len)? {
        return Ok(Answer::Integer(0));
    }
    may_write(call, "del")?;
    call.server.keys.delete(call.session.db, lock, call.now_ms);
    let heard = set_next(call, lock, keys_len).and_then(|()| tell_next(call, keys_len));
    if heard.is_ok_and(|count| count > 0) {
        return Ok(Answer::Integer(2));
    }
    call.server.keys.delete(call.session.db, lock, call.now_ms);
    Ok(Answer::Integer(1))
}

/// Makes the waiter the holder of the lock. The script has written: only access lists refuse it
/// now.
fn set_next(call: &mut Call<'_>, lock: &[u8], keys_len: usize) -> Result<(), String> {
    let (token, px) = (argument(call, keys_len, 1)?, argument(call, keys_len, 2)?);
    allowed(call, "set")?;
    let (db, now_ms, ends_at_ms) = (call.session.db, call.now_ms, end(call, px)?);
    call.server.keys.set(db, lock, token, Some(ends_at_ms), now_ms);
    Ok(())
}

/// Tells the waiter. Returns how many clients heard it.
fn tell_next(call: &mut Call<'_>, keys_len: usize) -> Result<usize, String> {
    let (channel, message) = (argument(call, keys_len, 3)?, argument(call, keys_len, 4)?);
    allowed(call, "publish")?;
    Ok(pubsub::send(call, channel, message))
}

/// Only a refused PTTL is an error. A key that is not a lock, or belongs to another library, has no
/// holder to tell.
fn introduce(call: &mut Call<'_>, keys_len: usize) -> Result<Answer, String> {
    let lock = key(call, keys_len, 0)?;
    // No token equals a missing argument.
    let own = call.args.get(3 + keys_len);
    let token = match read(call, lock) {
        Ok(None) => return Ok(Answer::Null),
        Ok(Some(token)) if Some(token.as_slice()) == own => return Ok(Answer::Null),
        Ok(Some(token)) => token,
        Err(_) => Vec::new(),
    };
    let digits = std::str::from_utf8(&token).unwrap_or_default();
    let told = match raw(digits) {
        Some(raw) => tell_holder(call, digits, &raw, keys_len).unwrap_or(0),
        None => 0,
    };
    allowed(call, "pttl")?;
    let remaining = left_ms(call, lock);
    Ok(Answer::Holder { token, remaining, told: i64::try_from(told).unwrap_or(0) })
}

/// The bytes of a token that a Redbolt client drew.
fn raw(digits: &str) -> Option<Vec<u8>> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 40 || !digits.bytes().all(is_digit) {
        return None;
    }
    let pairs = digits.as_bytes().chunks_exact(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Tells the client that drew the token, in a message that contains the token. Returns how many
/// clients heard it.
fn tell_holder(
    call: &mut Call<'_>,
    digits: &str,
    raw: &[u8],
    keys_len: usize,
) -> Result<usize, String> {
    let client = digits.get(..16).unwrap_or_default().as_bytes();
    let channel = [argument(call, keys_len, 1)?, client].concat();
    let message = [argument(call, keys_len, 2)?, raw, argument(call, keys_len, 3)?].concat();
    allowed(call, "publish")?;
    Ok(pubsub::send(call, &channel, &message))
}

/// Whether the lock holds the first argument; a missing lock holds nothing.
fn is_held(call: &mut Call<'_>, lock: &[u8], keys_len: usize) -> Result<bool, String> {
    let held = read(call, lock)?;
    Ok(held.is_some() && held.as_deref() == call.args.get(3 + keys_len))
}

fn compare_then(call: &mut Call<'_>, is_release: bool, keys_len: usize) -> Result<bool, String> {
    let lock = key(call, keys_len, 0)?;
    if !is_held(call, lock, keys_len)? {
        return Ok(false);
    }
    if is_release {
        may_write(call, "del")?;
        return Ok(call.server.keys.delete(call.session.db, lock, call.now_ms));
    }
    let amount = argument(call, keys_len, 1)?;
    may_write(call, "pexpire")?;
    move_end(call, lock, amount).map_err(str::to_owned)
}

/// ACLs apply to the commands inside a script as well.
fn allowed(call: &Call<'_>, command: &str) -> Result<(), String> {
    if !call.server.state.denied.iter().any(|denied| denied == command) {
        return Ok(());
    }
    Err(if call.server.flavor == Flavor::Redis70 {
        "ERR The user executing the script can't run this command or subcommand".to_owned()
    } else {
        let user = call.server.user_name(call.session);
        format!(
            "ERR ACL failure in script: User {user} has no permissions to run the '{command}' \
             command"
        )
    })
}
