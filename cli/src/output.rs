//! All output of commands: text or JSON to stdout, one line of error, numbers for people.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use redbolt::inspect::Notice;
pub(crate) use redbolt::inspect::shown;
use serde_json::Value;

use crate::remedy::told;
use crate::terminal::clear_line;

/// Writes one line, or several, to stdout.
pub(crate) fn say(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Writes one line to stderr. A failure to write changes nothing.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "redbolt: {text}");
}

/// As [`note`], in a place where a spinner may stand.
pub(crate) fn note_between(text: impl Display) {
    clear_line();
    note(text);
}

/// Prints notices about nodes on stderr while a command goes on.
pub(crate) fn tell(notices: impl Iterator<Item = Notice>) {
    for notice in notices {
        note_between(told(&notice));
    }
}

/// `1 lock`, `2 locks`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A duration in the form of an option: `30s`, `1m30s`.
pub(crate) fn typed(duration: &Duration) -> String {
    humantime::format_duration(*duration).to_string().replace(' ', "")
}

/// `230 us`, `3.1 ms`, `29.6 s`, `4 min 10 s`, rounded down: no lock is shown as lasting longer than
/// it does.
pub(crate) fn short(duration: Duration) -> String {
    let us = duration.as_micros();
    match us {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{}.{} ms", us / 1_000, us / 100 % 10),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..100_000_000 => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
        _ => {
            let seconds = duration.as_secs();
            let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
            if days > 0 {
                format!("{days} d {hours} h")
            } else if hours > 0 {
                format!("{hours} h {minutes} min")
            } else {
                format!("{minutes} min {} s", seconds % 60)
            }
        }
    }
}

/// Whole milliseconds, for JSON.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole microseconds, for JSON.
pub(crate) fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Each text about nodes once, with the names of its nodes in front. If a text is about all `count`
/// nodes, and there are several, `all` replaces the names.
pub(crate) fn together<'a>(
    said: impl Iterator<Item = (&'a str, &'a str)>,
    count: usize,
    all: &str,
) -> Vec<(String, &'a str)> {
    let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
    for (name, text) in said {
        match groups.iter_mut().find(|(_, other)| *other == text) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], text)),
        }
    }
    let shown = |names: Vec<&str>| {
        if names.len() == count && count > 1 { all.to_owned() } else { names.join(", ") }
    };
    groups.into_iter().map(|(names, text)| (shown(names), text)).collect()
}

/// Adds the fields of one object to another.
pub(crate) fn add(object: &mut Value, fields: Value) {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
}

/// Colours for a terminal; none elsewhere, with NO_COLOR, or on a dumb terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For stdout.
    pub(crate) fn stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: io::stdout().is_terminal() && !refused }
    }

    pub(crate) fn green(self, text: impl Display) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn red(self, text: impl Display) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn yellow(self, text: impl Display) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: impl Display) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// A key as an argument that a shell takes as one word.
pub(crate) fn argument(key: &[u8]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+=,".contains(c);
    let text = shown(key);
    let word = if text.as_bytes() != key {
        // bash, zsh and ksh read these escapes.
        format!("$'{}'", key.escape_ascii())
    } else if text.chars().all(is_plain) && !text.is_empty() {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    };
    if key.starts_with(b"-") { format!("-- {word}") } else { word }
}

/// The pattern for the slots of a lock, as an argument.
pub(crate) fn slots_of(key: &[u8]) -> String {
    argument(&[key, b":slot*"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let table = [
            (Duration::from_micros(231), "231 us"),
            (Duration::from_micros(3140), "3.1 ms"),
            (Duration::from_millis(250), "250 ms"),
            (Duration::from_millis(29_690), "29.6 s"),
            (Duration::from_millis(1977), "1.9 s"),
            (Duration::from_secs(250), "4 min 10 s"),
            (Duration::from_secs(7300), "2 h 1 min"),
            (Duration::from_secs(90_000), "1 d 1 h"),
        ];
        for (duration, text) in table {
            assert_eq!(short(duration), text);
        }
    }

    #[test]
    fn a_shell_takes_each_key_as_one_word() {
        for (key, word) in [
            (&b"sku:42"[..], "sku:42"),
            (b"a b", "'a b'"),
            (b"ab;rm x", "'ab;rm x'"),
            (b"it's", r"'it'\''s'"),
            (b"-k", "-- -k"),
            (b"a\n\\'\xff", r"$'a\n\\\'\xff'"),
            (b"", "''"),
        ] {
            assert_eq!(argument(key), word);
        }
        assert_eq!(slots_of(b"s"), "'s:slot*'");
    }
}
