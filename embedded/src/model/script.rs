//! Scripts: the two that a Redlock client sends, recognised by their text.
//!
//! Layer: sans-IO. There is no Lua here; any other script is refused with a plain error.

use super::flavor::Flavor;
use super::gate::{Call, READONLY};
use super::keys::{When, move_end};
use super::keyspace::Value;
use super::strings::{NOT_INTEGER, WRONG_TYPE};
use super::tracking::note_read;
use crate::request::{Args, number};

/// A script this node can run.
struct Known {
    text: &'static str,
    /// SHA-1 of the text, as `SCRIPT LOAD` answers it.
    sha1: &'static str,
}

const RELEASE: usize = 0;
const KNOWN: [Known; 2] = [
    Known {
        text: "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) \
               else return 0 end",
        sha1: "ae3671744a5dbb24ea37ef607b8b10ac7856d43e",
    },
    Known {
        text: "if redis.call('get',KEYS[1]) == ARGV[1] then return \
               redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end",
        sha1: "0be193f9697b4b30826e1bc553c0064e0e04668c",
    },
];

const UNKNOWN: &str = "ERR an embedded node has no Lua: it knows only the compare-and-delete and \
                       compare-and-expire scripts of Redbolt";

/// `EVAL script numkeys key .. arg ..`
pub(super) fn eval(call: &mut Call<'_>) {
    let keys_len = match keys_len(call.args) {
        Ok(keys_len) => keys_len,
        Err(text) => return call.reply().error(text),
    };
    let text = call.args.at(1);
    match KNOWN.iter().position(|known| known.text.as_bytes() == text) {
        Some(index) => {
            set_loaded(call, index);
            run(call, index, keys_len);
        }
        None => call.reply().error(UNKNOWN),
    }
}

/// `EVALSHA sha1 numkeys key .. arg ..`
pub(super) fn evalsha(call: &mut Call<'_>) {
    let no_script = call.server.flavor.no_script();
    let sha1 = call.args.at(1);
    if sha1.len() != 40 {
        return call.reply().error(no_script);
    }
    let keys_len = match keys_len(call.args) {
        Ok(keys_len) => keys_len,
        Err(text) => return call.reply().error(text),
    };
    match known_sha1(sha1).filter(|index| is_loaded(call, *index)) {
        Some(index) => run(call, index, keys_len),
        None => call.reply().error(no_script),
    }
}

/// `SCRIPT LOAD script`
pub(super) fn load(call: &mut Call<'_>) {
    let text = call.args.at(2);
    match KNOWN.iter().enumerate().find(|(_, known)| known.text.as_bytes() == text) {
        Some((index, known)) => {
            set_loaded(call, index);
            call.reply().text(known.sha1);
        }
        None => call.reply().error(UNKNOWN),
    }
}

/// `SCRIPT EXISTS sha1 ..`
pub(super) fn exists(call: &mut Call<'_>) {
    let args = call.args;
    call.reply().array(args.len() - 2);
    for sha1 in args.from(2) {
        let loaded = known_sha1(sha1).is_some_and(|index| is_loaded(call, index));
        call.reply().integer(i64::from(loaded));
    }
}

/// `SCRIPT FLUSH [ASYNC | SYNC]`
pub(super) fn flush(call: &mut Call<'_>) {
    let how = call.args.at(2);
    let known = how.eq_ignore_ascii_case(b"ASYNC") || how.eq_ignore_ascii_case(b"SYNC");
    if call.args.len() > 3 || call.args.len() == 3 && !known {
        return call.reply().error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    }
    call.server.flush_scripts();
    call.reply().ok();
}

fn known_sha1(sha1: &[u8]) -> Option<usize> {
    KNOWN.iter().position(|known| known.sha1.as_bytes().eq_ignore_ascii_case(sha1))
}

fn is_loaded(call: &Call<'_>, index: usize) -> bool {
    call.server.scripts.get(index).copied().unwrap_or(false)
}

fn set_loaded(call: &mut Call<'_>, index: usize) {
    if let Some(loaded) = call.server.scripts.get_mut(index) {
        *loaded = true;
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

/// Runs a script and writes its answer. An error of a command inside names the script.
fn run(call: &mut Call<'_>, index: usize, keys_len: usize) {
    match compare_then(call, index, keys_len) {
        Ok(answer) => call.reply().integer(i64::from(answer)),
        Err(text) => {
            let sha1 = KNOWN.get(index).map_or("", |known| known.sha1);
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

fn compare_then(call: &mut Call<'_>, index: usize, keys_len: usize) -> Result<bool, String> {
    let key = if keys_len > 0 { call.args.get(3) } else { None };
    let args = call.args;
    let argv = |number: usize| args.get(3 + keys_len + number);
    let Some(key) = key else {
        return Err(call.server.flavor.script_argument().to_owned());
    };
    allowed(call, "get")?;
    note_read(call, key);
    let entry = call.server.keys.entry(call.session.db, key, call.now_ms);
    let equal = match entry.map(|entry| &entry.value) {
        None => false,
        Some(Value::Text(text)) => argv(0).is_some_and(|expected| expected == text),
        Some(Value::List(_)) => return Err(WRONG_TYPE.to_owned()),
    };
    if !equal {
        return Ok(false);
    }
    if index != RELEASE && argv(1).is_none() {
        return Err(call.server.flavor.script_argument().to_owned());
    }
    allowed(call, if index == RELEASE { "del" } else { "pexpire" })?;
    if call.server.state.misconf {
        return Err(call.server.misconf());
    }
    if call.server.state.replica {
        return Err(READONLY.to_owned());
    }
    if index == RELEASE {
        return Ok(call.server.keys.delete(call.session.db, key, call.now_ms));
    }
    let amount = argv(1).unwrap_or(b"");
    move_end(call, key, amount, When::default()).map_err(str::to_owned)
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
