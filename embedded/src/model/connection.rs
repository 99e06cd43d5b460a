//! The connection itself: HELLO, AUTH, PING, ECHO, SELECT, CLIENT SETNAME, RESET, QUIT.
//!
//! Layer: sans-IO.

use super::call::Call;
use super::flavor::Flavor;
use super::keyspace::DATABASES;
use super::server::Server;
use super::session::{Session, User};
use super::strings::{NOT_INTEGER, SYNTAX};
use crate::request::number;

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

impl Server {
    /// The name of the session's user.
    pub(crate) fn user_name(&self, session: &Session) -> String {
        match (session.user, &self.named) {
            (Some(User::Named), Some((name, _))) => String::from_utf8_lossy(name).into_owned(),
            (_, _) => "default".to_owned(),
        }
    }

    fn login(&self, name: &[u8], password: &[u8]) -> Option<User> {
        if name == b"default" {
            let matches = self.password.as_deref().is_none_or(|expected| expected == password);
            return matches.then_some(User::Default);
        }
        let (named, expected) = self.named.as_ref()?;
        (named == name && expected == password).then_some(User::Named)
    }
}

/// `AUTH [user] password`
pub(super) fn auth(call: &mut Call<'_>) {
    let args = call.args;
    let (name, password) = match args.len() {
        2 if call.server.password.is_none() => {
            return call.reply().error(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            );
        }
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return call.reply().error(SYNTAX),
    };
    match call.server.login(name, password) {
        Some(user) => {
            call.session.user = Some(user);
            call.reply().ok();
        }
        None => refuse_login(call),
    }
}

/// Answers wrong credentials. Some servers send no answer at all while earlier replies of the same
/// pipeline are unwritten. A client that counts replies is out of step from there on.
fn refuse_login(call: &mut Call<'_>) {
    let silent = match call.server.flavor {
        Flavor::Redis80 | Flavor::Redis86 | Flavor::Valkey81 => !call.out.is_empty(),
        Flavor::Redis70 | Flavor::Valkey91 => false,
    };
    if !silent {
        call.reply().error(WRONG_PASS);
    }
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub(super) fn hello(call: &mut Call<'_>) {
    let version = match call.args.get(1).map(number) {
        None => None,
        Some(None) => {
            let text = "ERR Protocol version is not an integer or out of range";
            return call.reply().error(text);
        }
        Some(Some(version @ 2..=3)) => Some(version),
        Some(Some(_)) => return call.reply().error("NOPROTO unsupported protocol version"),
    };
    match hello_options(call) {
        Ok(()) => {}
        Err(Refusal::Login) => return refuse_login(call),
        Err(Refusal::Text(text)) => return call.reply().error_bytes(&text),
    }
    if call.session.user.is_none() {
        let text = call.server.flavor.hello_unauthenticated();
        return call.reply().error(text);
    }
    if let Some(version) = version {
        call.session.resp3 = version == 3;
        call.server.channels.speak(call.session.id, call.session.resp3);
    }
    greet(call);
}

/// Why HELLO's options are refused.
enum Refusal {
    /// Wrong credentials.
    Login,
    /// Anything else: the error.
    Text(Vec<u8>),
}

/// Applies HELLO's options. The model keeps no names.
fn hello_options(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args;
    // Redis 7.0 applies each option as it reads it; the others apply options only once they know
    // all.
    let at_once = call.server.flavor == Flavor::Redis70;
    let mut login = None;
    let mut index = 2;
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"AUTH") && args.len() > index + 2 {
            login = Some((args.at(index + 1), args.at(index + 2)));
            if at_once {
                authenticate(call, login.take())?;
            }
            index += 3;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && args.len() > index + 1 {
            if !is_name(args.at(index + 1), call.server.flavor) {
                return Err(Refusal::Text(BAD_NAME.into()));
            }
            index += 2;
        } else {
            let option = super::reply::printed(option, option.len());
            let text = [b"ERR Syntax error in HELLO option '", option, b"'"].concat();
            return Err(Refusal::Text(text));
        }
    }
    authenticate(call, login)
}

fn authenticate(call: &mut Call<'_>, login: Option<(&[u8], &[u8])>) -> Result<(), Refusal> {
    if let Some((name, password)) = login {
        call.session.user = Some(call.server.login(name, password).ok_or(Refusal::Login)?);
    }
    Ok(())
}

fn greet(call: &mut Call<'_>) {
    let (flavor, resp3, id) = (call.server.flavor, call.session.resp3, call.session.id);
    let mode = if call.server.state.cluster { "cluster" } else { "standalone" };
    let role = if call.server.state.replica { "replica" } else { "master" };
    let mut reply = call.reply();
    reply.map(7);
    for (field, value) in [("server", flavor.server()), ("version", flavor.version())] {
        reply.text(field);
        reply.text(value);
    }
    reply.text("proto");
    reply.integer(if resp3 { 3 } else { 2 });
    reply.text("id");
    reply.integer(i64::try_from(id).unwrap_or(i64::MAX));
    for (field, value) in [("mode", mode), ("role", role)] {
        reply.text(field);
        reply.text(value);
    }
    reply.text("modules");
    let Some((name, path)) = flavor.module() else {
        return reply.array(0);
    };
    reply.array(1);
    reply.map(4);
    reply.text("name");
    reply.text(name);
    reply.text("ver");
    reply.integer(1);
    reply.text("path");
    reply.text(path);
    reply.text("args");
    reply.array(0);
}

/// `PING [message]`
pub(super) fn ping(call: &mut Call<'_>) {
    let args = call.args;
    if args.len() > 2 {
        return call.reply().error("ERR wrong number of arguments for 'ping' command");
    }
    let subscribed = !call.session.resp3 && !call.session.channels.is_empty();
    let mut reply = call.reply();
    match args.get(1) {
        message if subscribed => {
            reply.array(2);
            reply.text("pong");
            reply.bulk(message.unwrap_or(b""));
        }
        Some(message) => reply.bulk(message),
        None => reply.simple("PONG"),
    }
}

/// `ECHO message`
pub(super) fn echo(call: &mut Call<'_>) {
    let message = call.args.at(1);
    call.reply().bulk(message);
}

/// `SELECT index`
pub(super) fn select(call: &mut Call<'_>) {
    let Some(index) = number(call.args.at(1)) else {
        return call.reply().error(NOT_INTEGER);
    };
    if i32::try_from(index).is_err() {
        let text = "ERR value is out of range, value must between -2147483648 and 2147483647";
        return call.reply().error(text);
    }
    match usize::try_from(index).ok().filter(|index| *index < DATABASES) {
        Some(db) => {
            call.session.db = db;
            call.reply().ok();
        }
        None => call.reply().error("ERR DB index is out of range"),
    }
}

/// `RESET`
pub(super) fn reset(call: &mut Call<'_>) {
    call.server.channels.leave(call.session);
    call.session.resp3 = false;
    call.session.db = 0;
    call.session.user = call.server.password.is_none().then_some(User::Default);
    call.reply().simple("RESET");
}

/// `QUIT`
pub(super) fn quit(call: &mut Call<'_>) {
    call.session.closing = true;
    call.reply().ok();
}

/// Whether a client may use this name. Later servers check only up to the first NUL.
fn is_name(name: &[u8], flavor: Flavor) -> bool {
    let looked_at = match flavor {
        Flavor::Redis70 => name,
        Flavor::Redis80 | Flavor::Redis86 | Flavor::Valkey81 | Flavor::Valkey91 => {
            super::reply::printed(name, name.len())
        }
    };
    looked_at.iter().all(u8::is_ascii_graphic)
}

/// `CLIENT SETNAME name`
pub(super) fn client_setname(call: &mut Call<'_>) {
    let name = call.args.at(2);
    if !is_name(name, call.server.flavor) {
        return call.reply().error(BAD_NAME);
    }
    call.reply().ok();
}
