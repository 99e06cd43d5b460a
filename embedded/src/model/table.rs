//! The command table: names, arities, flags and flavors.
//!
//! Layer: sans-IO, plain values. Arity and flags are the servers' own.

use super::call::Call;
use super::flavor::Flavor;
use super::reply::printed;
use super::{connection, info, keys, pubsub, script, strings};
use crate::request::Args;

/// One command.
pub(crate) struct Command {
    /// In lower case; a subcommand follows a bar: `client|setname`.
    pub(crate) name: &'static str,
    /// The number of arguments, counting the name; negative: at least this many.
    arity: i8,
    flags: u16,
    flavors: u8,
    pub(crate) run: fn(&mut Call<'_>),
}

/// Outcome of [`find`].
pub(crate) enum Found {
    Command(&'static Command),
    /// The text of the error.
    Missing(Vec<u8>),
}

/// The command changes keys.
pub(crate) const WRITE: u16 = 1;
/// The command may need memory.
pub(crate) const DENY_OOM: u16 = 2;
/// The command runs before authentication.
pub(crate) const NO_AUTH: u16 = 4;
/// The command runs while the server is loading.
pub(crate) const LOADING: u16 = 8;
/// The command runs on a replica that has lost its master.
pub(crate) const STALE: u16 = 16;
/// The command runs on a RESP2 connection that is subscribed.
pub(crate) const SUBSCRIBED: u16 = 32;
/// The command runs during a long script.
const BUSY: u16 = 64;
/// The command runs during a long script, on Valkey 9.1 alone.
const BUSY_91: u16 = 128;

impl Command {
    pub(crate) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether a server of this flavor runs the command during a long script.
    pub(crate) fn runs_beside_script(&self, flavor: Flavor) -> bool {
        self.has(BUSY) || self.has(BUSY_91) && flavor == Flavor::Valkey91
    }

    pub(crate) fn takes(&self, len: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { len >= least } else { len == least }
    }
}

impl Found {
    pub(crate) const fn has(&self, flag: u16) -> bool {
        match self {
            Self::Command(command) => command.has(flag),
            Self::Missing(_) => false,
        }
    }
}

/// Looks up a request's command; commands in `renamed` are unknown.
pub(crate) fn find(args: Args<'_>, flavor: Flavor, renamed: &[String]) -> Found {
    let mut name = [0; NAME_LEN_MAX];
    let mut len = lower(args.at(0), &mut name, 0);
    let is_container = len
        .and_then(|len| name.get(..len))
        .is_some_and(|name| CONTAINERS.iter().any(|container| container.as_bytes() == name));
    if is_container && args.len() > 1 {
        len = len.and_then(|len| lower(b"|", &mut name, len));
        len = len.and_then(|len| lower(args.at(1), &mut name, len));
    }
    let name = len.and_then(|len| name.get(..len)).unwrap_or(b"");
    let found = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(name));
    match found.ok().and_then(|index| COMMANDS.get(index)) {
        Some(command) if renamed.iter().any(|renamed| renamed == command.name) => {
            Found::Missing(unknown_command(args, flavor))
        }
        Some(command) if command.flavors & flavor.bit() != 0 => Found::Command(command),
        Some(_) | None if is_container => Found::Missing(unknown_subcommand(args)),
        Some(_) | None => Found::Missing(unknown_command(args, flavor)),
    }
}

fn lower(text: &[u8], into: &mut [u8; NAME_LEN_MAX], from: usize) -> Option<usize> {
    let end = from + text.len();
    let target = into.get_mut(from..end)?;
    target.copy_from_slice(text);
    target.make_ascii_lowercase();
    Some(end)
}

fn unknown_command(args: Args<'_>, flavor: Flavor) -> Vec<u8> {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(printed(args.at(0), ECHO_LEN_MAX));
    text.push(b'\'');
    if args.len() == 1 && flavor == Flavor::Redis86 {
        return text;
    }
    text.extend_from_slice(b", with args beginning with: ");
    let start = text.len();
    for arg in args.from(1) {
        let room = ECHO_LEN_MAX.saturating_sub(text.len() - start);
        if room == 0 {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(printed(arg, room));
        text.extend_from_slice(b"' ");
    }
    text
}

fn unknown_subcommand(args: Args<'_>) -> Vec<u8> {
    let container = args.at(0).to_ascii_uppercase();
    let subcommand = printed(args.at(1), ECHO_LEN_MAX);
    [b"ERR unknown subcommand '", subcommand, b"'. Try ", &container, b" HELP."].concat()
}

const NAME_LEN_MAX: usize = 32;
const ECHO_LEN_MAX: usize = 128;
const CONTAINERS: [&str; 2] = ["client", "config"];

const ALL: u8 = 31;
const VALKEY_91: u8 = 16;
const REDIS_86: u8 = 4;

/// The command runs while the server is loading, and on a replica that has lost its master.
const LOADING_AND_STALE: u16 = LOADING | STALE;

const fn command(name: &'static str, arity: i8, flags: u16, run: fn(&mut Call<'_>)) -> Command {
    Command { name, arity, flags, flavors: ALL, run }
}

const fn only(flavors: u8, mut command: Command) -> Command {
    command.flavors = flavors;
    command
}

/// Never runs: the gate refuses a container without a subcommand by its arity.
fn container(call: &mut Call<'_>) {
    call.reply().error("ERR syntax error");
}

/// Sorted by name: [`find`] does a binary search.
#[rustfmt::skip]
static COMMANDS: [Command; 27] = [
    command("auth", -2, LOADING_AND_STALE | NO_AUTH | BUSY, connection::auth),
    command("client", -2, LOADING_AND_STALE, container),
    command("client|setname", 3, LOADING_AND_STALE | BUSY_91, connection::client_setname),
    command("config", -2, LOADING_AND_STALE, container),
    command("config|get", -3, LOADING_AND_STALE, info::config_get),
    command("dbsize", 1, 0, keys::dbsize),
    command("del", -2, WRITE, keys::del),
    only(REDIS_86, command("delex", -2, WRITE, strings::delex)),
    only(VALKEY_91, command("delifeq", 3, WRITE, strings::delifeq)),
    command("echo", 2, LOADING_AND_STALE, connection::echo),
    command("eval", -3, 0, script::eval),
    command("flushall", -1, WRITE, keys::flushall),
    command("get", 2, 0, strings::get),
    command("hello", -1, LOADING_AND_STALE | NO_AUTH | BUSY, connection::hello),
    command("info", -1, LOADING_AND_STALE, info::info),
    only(REDIS_86 | VALKEY_91, command("msetex", -4, WRITE | DENY_OOM, strings::msetex)),
    command("ping", -1, SUBSCRIBED, connection::ping),
    command("pttl", 2, 0, keys::pttl),
    command("publish", 3, LOADING_AND_STALE, pubsub::publish),
    command("quit", -1, LOADING_AND_STALE | NO_AUTH | BUSY | SUBSCRIBED, connection::quit),
    command("reset", 1, LOADING_AND_STALE | NO_AUTH | BUSY | SUBSCRIBED, connection::reset),
    command("rpush", -3, WRITE | DENY_OOM, keys::rpush),
    command("select", 2, LOADING_AND_STALE | BUSY_91, connection::select),
    command("set", -3, WRITE | DENY_OOM, strings::set),
    command("subscribe", -2, LOADING_AND_STALE | SUBSCRIBED, pubsub::subscribe),
    command("time", 1, LOADING_AND_STALE, info::time),
    command("unsubscribe", -1, LOADING_AND_STALE | SUBSCRIBED, pubsub::unsubscribe),
];

#[cfg(test)]
mod tests {
    use super::{COMMANDS, NAME_LEN_MAX};

    #[test]
    fn the_table_is_in_the_order_of_its_names() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        assert!(COMMANDS.iter().all(|command| command.name.len() <= NAME_LEN_MAX));
    }
}
