//! Reports a mistake in a command line, on one line that says what to do. The line comes from
//! clap's findings, without logins and tokens, and without text that is too long to read.

use std::error::Error as _;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory as _};

use crate::args::Cli;
use crate::duration::duration;
use crate::output::shown;

/// The most letters of an argument that the report repeats.
const SHOWN_MAX: usize = 60;

/// clap's error on one line.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
pub(crate) fn message(error: &clap::Error) -> String {
    let what = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            return "which command? redbolt --help lists them; redbolt demo is a good start"
                .to_owned();
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => invalid(error),
        ErrorKind::UnknownArgument => unexpected(error),
        _ => None,
    };
    let what = what.unwrap_or_else(|| of_clap(error));
    format!("{} ({} says how)", without_logins(&what), help())
}

/// clap's message, with its tip, on one line.
fn of_clap(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let message = lines.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let message = message.trim_end_matches(" For more information, try '--help'.");
    let message = message.replace(" tip: ", "; tip: ");
    let given =
        [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];
    let given = given.into_iter().filter_map(|kind| text_of(error, kind));
    given.fold(message, |message, given| message.replace(given, &brief(given)))
}

fn missing(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if let Some(command) = named().filter(|name| runs_a_command(name)) {
        let is_missing = |what: &str| names.iter().any(|name| name.contains(what));
        if is_missing("KEY") {
            return Some("the name of the lock is missing: redbolt run KEY -- CMD".to_owned());
        }
        if is_missing("NAME") {
            let call = "redbolt elect NAME -- CMD";
            return Some(format!("the name of the election is missing: {call}"));
        }
        if is_missing("CMD") {
            return Some(behind_dashes(&command, &typed_keys()));
        }
    }
    let verb = if names.len() == 1 { "is" } else { "are" };
    // clap's `<--read|--write>` for one of several options.
    let one_of = |name: &String| match name.strip_prefix("<--") {
        Some(options) => format!("--{}", options.trim_end_matches('>').replace('|', " or ")),
        None => name.clone(),
    };
    let names: Vec<String> = names.iter().map(one_of).collect();
    Some(format!("{} {verb} missing", names.join(" and ")))
}

fn invalid(error: &clap::Error) -> Option<String> {
    let value = text_of(error, ContextKind::InvalidValue)?;
    let option = text_of(error, ContextKind::InvalidArg)?;
    if value.is_empty() {
        // These are clap's own words for an option without a value.
        error.source()?;
    }
    let why = match (error.get(ContextKind::ValidValue), error.source()) {
        (Some(ContextValue::Strings(words)), _) => format!("it must be {}", words.join(" or ")),
        (_, Some(source)) => {
            let number = source.downcast_ref::<ParseIntError>().map(ParseIntError::kind);
            if number == Some(&IntErrorKind::Zero) {
                "it must be 1 or more".to_owned()
            } else if number == Some(&IntErrorKind::PosOverflow) {
                "the number is too large".to_owned()
            } else if number.is_some() {
                "write a whole number".to_owned()
            } else if source.is::<ParseFloatError>() {
                "write a number".to_owned()
            } else {
                in_range(&source.to_string())
            }
        }
        _ => return None,
    };
    let tip = text_of(error, ContextKind::SuggestedValue);
    let tip = tip.map_or_else(String::new, |tip| format!("; did you mean {tip}?"));
    Some(format!("invalid value '{}' for '{option}': {why}{tip}", brief(value)))
}

/// clap's `0 is not in 1..=64` in plain words.
fn in_range(why: &str) -> String {
    let range = why.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
    range.map_or_else(
        || why.to_owned(),
        |(least, most)| format!("it must be from {least} to {most}"),
    )
}

fn unexpected(error: &clap::Error) -> Option<String> {
    let word = text_of(error, ContextKind::InvalidArg)?;
    let command = named()?;
    let shown = brief(word);
    if follows_a_comma(word) {
        return Some(format!(
            "unexpected argument '{shown}': addresses are separated by commas alone, without spaces"
        ));
    }
    if let Some((option, value)) = negative(word) {
        return Some(format!("invalid value '{value}' for '{option}': it must not be negative"));
    }
    if !runs_a_command(&command) {
        return None;
    }
    let mut typed = typed_keys();
    let has_dashes = typed.is_empty() || words().any(|word| word == "--");
    typed.push(shown.clone());
    // For `run` the second may be another KEY.
    if !has_dashes && (typed.len() > 2 || command == "elect") {
        return Some(behind_dashes(&command, &typed));
    }
    // clap's own tip would put the option behind the dashes, where it would belong to CMD.
    let tip = text_of(error, ContextKind::SuggestedArg);
    let tip = tip.map_or_else(String::new, |tip| format!("; did you mean {tip}?"));
    Some(format!("unexpected argument '{shown}'{tip}"))
}

/// An option and its negative value, which clap takes for another option. Any other text may be a
/// token, so it is not repeated.
fn negative(word: &str) -> Option<(String, String)> {
    let words: Vec<String> = words().map(|word| word.to_string_lossy().into_owned()).collect();
    let is_number = |value: &str| {
        let rest = value.strip_prefix('-').unwrap_or_default();
        value.starts_with(word) && (rest.parse::<f64>().is_ok() || duration(rest).is_ok())
    };
    let mut pairs = words.windows(2).filter_map(|pair| <&[String; 2]>::try_from(pair).ok());
    let [option, value] =
        pairs.find(|[option, value]| option.starts_with('-') && is_number(value))?;
    Some((brief(option), brief(value)))
}

fn runs_a_command(name: &str) -> bool {
    matches!(name, "run" | "elect")
}

/// `run` or `elect` without its command: the user forgot it, or the dashes in front of it.
fn behind_dashes(name: &str, keys: &[String]) -> String {
    match keys {
        [key, command @ ..] if !command.is_empty() => {
            let command = command.join(" ");
            format!("the command goes behind --, as in: redbolt {name} {key} -- {command}")
        }
        [key] => format!("the command is missing: redbolt {name} {key} -- CMD"),
        _ => format!("the command is missing: redbolt {name} KEY -- CMD"),
    }
}

/// Whether the word in front of this argument ends in a comma, as in a list that a blank has split.
fn follows_a_comma(argument: &str) -> bool {
    let words: Vec<String> = words().map(|word| word.to_string_lossy().into_owned()).collect();
    words
        .windows(2)
        .any(|pair| matches!(pair, [before, word] if before.ends_with(',') && word == argument))
}

/// The arguments of `run` or `elect` in front of any `--` that are not options.
fn typed_keys() -> Vec<String> {
    let matches = Cli::command().ignore_errors(true).try_get_matches().ok();
    let run = matches.as_ref().and_then(ArgMatches::subcommand).map(|(_, run)| run);
    let of = |name| run.and_then(|run| run.try_get_raw(name).ok().flatten());
    let keys = of("keys").or_else(|| of("election"));
    let text = |key: &std::ffi::OsStr| brief(&shown(key.as_encoded_bytes()));
    keys.map(|keys| keys.map(text).collect()).unwrap_or_default()
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    if let Some(ContextValue::String(text)) = error.get(kind) { Some(text) } else { None }
}

/// The beginning of a text that is too long to repeat.
fn brief(text: &str) -> String {
    let mut letters = text.chars();
    let start: String = letters.by_ref().take(SHOWN_MAX).collect();
    if letters.next().is_some() { format!("{start}..") } else { start }
}

fn words() -> impl Iterator<Item = std::ffi::OsString> {
    std::env::args_os().skip(1)
}

/// The name of the command that the user called.
fn named() -> Option<String> {
    let cli = Cli::command();
    words().take_while(|word| word != "--").find_map(|word| {
        let word = word.into_string().ok()?;
        cli.find_subcommand(&word).map(|_| word)
    })
}

/// The call that shows help for the named command, or for all.
fn help() -> String {
    named().map_or_else(|| "redbolt --help".to_owned(), |name| format!("redbolt {name} --help"))
}

/// `text` without the parts between `://` and `@`.
fn without_logins(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let word = after.find(|letter: char| letter.is_whitespace()).unwrap_or(after.len());
        let (word, tail) = after.split_at(word);
        shown.push_str(word.rsplit_once('@').map_or(word, |(_, place)| place));
        rest = tail;
    }
    shown + rest
}
