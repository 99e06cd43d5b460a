//! The sources of settings: an option, else a variable, else the file, else the default.
//!
//! One name makes all three: `max-ttl` in the file is `--max-ttl` on the command line and
//! `REDBOLT_MAX_TTL` in the environment.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use clap::ValueEnum as _;
use redbolt::inspect::Address;
use toml::{Table, Value};

use crate::args::{Global, Switch, word};
use crate::duration::duration;
use crate::exit::Failure;
use crate::output::typed;

/// The variable that names the file.
const FILE_VARIABLE: &str = "REDBOLT_CONFIG";

/// A setting that can be given in all three ways.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// In words of the documentation; empty if there is none.
    pub(crate) default: &'static str,
    /// Whether it is a path; a path in the file is relative to the file's directory.
    is_path: bool,
    /// The value in force, without a password; `None` for the default.
    pub(crate) get: fn(&Global) -> Option<String>,
    put: fn(&mut Global, String) -> Result<(), String>,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Variable,
    File,
    Default,
}

/// The file that was read, and the source of the value of each of [`SETTINGS`].
#[derive(Debug, Default)]
pub(crate) struct Origins {
    pub(crate) file: Option<PathBuf>,
    pub(crate) sources: Vec<Source>,
}

impl Origins {
    /// Names the source of a setting in place of its option, where the message begins with it.
    pub(crate) fn named(&self, failure: Failure) -> Failure {
        let mut settings = SETTINGS.iter().zip(&self.sources);
        let Some((option, rest)) = failure.message.split_once(' ') else { return failure };
        let is_it = |setting: &Setting| option.strip_prefix("--") == Some(setting.name);
        let place = match (settings.find(|(setting, _)| is_it(setting)), &self.file) {
            (Some((setting, Source::Variable)), _) => setting.variable(),
            (Some((setting, Source::File)), Some(file)) => {
                format!("{}: {}", file.display(), setting.name)
            }
            (Some(_) | None, _) => return failure,
        };
        Failure { message: format!("{place} {rest}"), ..failure }
    }
}

impl Setting {
    fn names_nodes(&self) -> bool {
        matches!(self.name, "nodes" | "next-nodes")
    }

    pub(crate) fn variable(&self) -> String {
        format!("REDBOLT_{}", self.name.replace('-', "_").to_uppercase())
    }
}

/// A setting. `$read` reads the field, and `$show` shows it.
macro_rules! setting {
    ($name:literal, $default:literal, $field:ident, $read:expr, $show:expr) => {
        setting!($name, $default, $field, $read, $show, false)
    };
    ($name:literal, $default:literal, $field:ident, $read:expr, $show:expr, $is_path:literal) => {
        Setting {
            name: $name,
            default: $default,
            is_path: $is_path,
            get: |global| global.$field.as_ref().map($show),
            put: |global, text| {
                global.$field = Some($read(text)?);
                Ok(())
            },
        }
    };
}

pub(crate) const SETTINGS: [Setting; 15] = [
    setting!("nodes", "", nodes, plain, |nodes| without_passwords(nodes)),
    setting!("next-nodes", "", next_nodes, plain, |nodes| without_passwords(nodes)),
    setting!("max-ttl", "30s", max_ttl, time, typed),
    setting!("restart-guard", "on", restart_guard, switch, word),
    setting!("failover-guard", "on", failover_guard, switch, word),
    setting!("quorum", "more than half", quorum, count, usize::to_string),
    setting!("node-timeout", "50ms", node_timeout, time, typed),
    setting!("max-clock-skew", "1s", max_clock_skew, time, typed),
    setting!("fence-ttl", "24h", fence_ttl, time, typed),
    setting!("prefix", "", prefix, plain, |text| crate::output::shown(text.as_encoded_bytes())),
    setting!("user", "", user, plain, String::clone),
    setting!("password-file", "", password_file, plain, |path| shown_path(path), true),
    setting!("tls-ca", "", tls_ca, plain, |path| shown_path(path), true),
    setting!("tls-cert", "", tls_cert, plain, |path| shown_path(path), true),
    setting!("tls-key", "", tls_key, plain, |path| shown_path(path), true),
];

fn time(text: String) -> Result<Duration, String> {
    duration(&text)
}

fn switch(text: String) -> Result<Switch, String> {
    Switch::from_str(&text, false).map_err(|_| "it must be on or off".to_owned())
}

fn count(text: String) -> Result<usize, String> {
    text.parse().map_err(|_| "write a whole number".to_owned())
}

fn plain<T: From<String>>(text: String) -> Result<T, String> {
    Ok(text.into())
}

fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

/// Fills the settings that no option gave, from the environment and the file.
pub(crate) fn fill(global: &mut Global) -> Result<Origins, Failure> {
    let lists =
        [("nodes", "NODES", &global.nodes), ("next-nodes", "NEXT_NODES", &global.next_nodes)];
    for (option, variable, nodes) in lists {
        if nodes.as_deref().is_some_and(|nodes| nodes.split(',').any(has_password)) {
            return Err(Failure::usage(format!(
                "--{option} holds a password, which ps shows to other users: name the nodes in \
                 REDBOLT_{variable} or in the file of redbolt config, or give the password with \
                 --password-file",
            )));
        }
    }
    let (file, mut table) = read(global)?.unzip();
    let mut sources = Vec::with_capacity(SETTINGS.len());
    for setting in &SETTINGS {
        let (variable, in_file) = (setting.variable(), take(setting, &file, &mut table)?);
        let source = if (setting.get)(global).is_some() {
            Source::Flag
        } else if let Some(text) = text_of(&variable)? {
            (setting.put)(global, text)
                .map_err(|why| Failure::usage(format!("{variable}: {why}")))?;
            Source::Variable
        } else if let Some((place, text)) = in_file {
            (setting.put)(global, text).map_err(|why| Failure::usage(format!("{place}: {why}")))?;
            Source::File
        } else {
            Source::Default
        };
        sources.push(source);
    }
    if let (Some(file), Some(key)) = (&file, table.as_ref().and_then(|table| table.keys().next())) {
        let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        let message = format!(
            "{}: no setting is named {key}; there are {}",
            file.display(),
            names.join(", ")
        );
        return Err(Failure::usage(message));
    }
    let is_named = SETTINGS.iter().zip(&sources).all(|(setting, source)| {
        !setting.names_nodes() || matches!(source, Source::File | Source::Default)
    });
    global.named_in = file.clone().filter(|_| is_named && global.nodes.is_some());
    Ok(Origins { file, sources })
}

/// Reads again which nodes the file names; the other settings stay.
pub(crate) fn renamed(global: &Global, file: &Path) -> Result<Global, Failure> {
    let mut found = Global { nodes: None, next_nodes: None, ..global.clone() };
    let (file, mut table) = (Some(file.to_owned()), Some(table_of(file)?));
    for setting in SETTINGS.iter().filter(|setting| setting.names_nodes()) {
        if let Some((place, text)) = take(setting, &file, &mut table)? {
            (setting.put)(&mut found, text)
                .map_err(|why| Failure::usage(format!("{place}: {why}")))?;
        }
    }
    Ok(found)
}

/// The value of a variable; an empty one counts as none.
fn text_of(variable: &str) -> Result<Option<String>, Failure> {
    match env::var(variable) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{variable} is not UTF-8")))
        }
    }
}

/// Takes a setting out of the file's table: its place, and its text.
fn take(
    setting: &Setting,
    file: &Option<PathBuf>,
    table: &mut Option<Table>,
) -> Result<Option<(String, String)>, Failure> {
    let (Some(file), Some(table)) = (file, table) else { return Ok(None) };
    let Some(value) = table.remove(setting.name) else { return Ok(None) };
    let place = format!("{}: {}", file.display(), setting.name);
    let Some(text) = text(&value) else {
        let how = match setting.names_nodes() {
            true => "write each address in quotes",
            false => "write it in quotes, such as '30s' or 'on'",
        };
        return Err(Failure::usage(format!("{place}: {how}")));
    };
    let text = match file.parent() {
        Some(dir) if setting.is_path => dir.join(text).display().to_string(),
        _ => text,
    };
    Ok(Some((place, text)))
}

/// A string; a number, for `quorum`; or a list of strings, for `nodes`.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Array(list) => {
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            texts.map(|texts| texts.join(","))
        }
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// The file and its content. A file that nobody named need not exist.
fn read(global: &Global) -> Result<Option<(PathBuf, Table)>, Failure> {
    let named = global
        .config
        .clone()
        .or_else(|| env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from));
    let Some(file) = named.clone().or_else(usual_file) else { return Ok(None) };
    // If this process may not look at the file, `table_of` reports the error.
    if named.is_none() && fs::exists(&file).is_ok_and(|is_there| !is_there) {
        return Ok(None);
    }
    let table = table_of(&file)?;
    Ok(Some((file, table)))
}

fn table_of(file: &Path) -> Result<Table, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    // The error's own text would show the line, which may hold a password.
    text.parse::<Table>().map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        wrong(format!(
            "line {}: {}",
            before.lines().count().max(1),
            error.message().replace('\n', " ")
        ))
    })
}

/// The file in the user's own directory. With a file in the working directory, a command that runs
/// elsewhere would use other nodes, and so no lock in common with this command.
fn usual_file() -> Option<PathBuf> {
    let dir = |name| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let config = dir("XDG_CONFIG_HOME").or_else(|| dir("HOME").map(|home| home.join(".config")))?;
    Some(config.join(Path::new("redbolt/config.toml")))
}

/// Whether an address holds a password.
fn has_password(address: &str) -> bool {
    login(address).is_some_and(|login| login.contains(':'))
}

/// The part of an address in front of the host.
fn login(address: &str) -> Option<&str> {
    let (login, _) = address.rsplit_once('@')?;
    Some(login.split_once("://").map_or(login, |(_, login)| login))
}

/// A list of addresses with `***` for each password. A comma in a password cuts its address in two. So
/// nothing is shown of a list with a part that is no address.
fn without_passwords(nodes: &str) -> String {
    let may_be_part = |part: &str| {
        let place = part.split_once("://").map_or(part, |(_, place)| place);
        !part.is_empty()
            && !part.contains('@')
            && !place.starts_with('/')
            && Address::parse(place).is_err()
    };
    if nodes.split(',').any(may_be_part) {
        return "***".to_owned();
    }
    let masked = |address: &str| match login(address).and_then(|login| login.split_once(':')) {
        Some((user, password)) => {
            address.replacen(&format!("{user}:{password}@"), &format!("{user}:***@"), 1)
        }
        None => address.to_owned(),
    };
    nodes.split(',').map(masked).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_masked_wherever_it_stands() {
        let nodes = "redis://u:s3cret@h:1,:s3cret@h:2,unix://u:s3@cret@/path,redis://u@h:3,h:4";
        assert_eq!(
            without_passwords(nodes),
            "redis://u:***@h:1,:***@h:2,unix://u:***@/path,redis://u@h:3,h:4"
        );
        for plain in ["", "h:1,[::1]:2", "rediss://h:1", "unix:///run/a"] {
            assert_eq!(without_passwords(plain), plain);
        }
        for broken in ["redis://u:s3,cret@h:1", "redis://h:1?password=s3cret"] {
            assert_eq!(without_passwords(broken), "***");
        }
    }
}
