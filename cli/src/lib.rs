//! `redbolt`: the command line of the Redlock client [Redbolt](https://docs.rs/redbolt).
//!
//! A library so that the example `assets` sees the same command line as the binary; it promises
//! nothing to other programs. One file per command; `args` has their options, `exit` how they end.

#![forbid(unsafe_code)]

mod advice;
mod alarm;
mod args;
mod bench;
mod child;
mod clock;
mod demo;
mod doctor;
mod duration;
mod examined;
mod exit;
mod extend;
mod fitness;
mod force;
mod holders;
mod keyboard;
mod lock;
mod look;
mod ls;
mod node;
mod output;
mod own_binary;
#[doc(hidden)]
pub mod plot;
mod progress;
mod remedy;
mod run;
mod session;
mod settings;
mod signals;
mod status;
mod table;
mod terminal;
mod times;
mod top;
mod unlock;
mod watch;
mod watchdog;

use std::panic;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};
use demo::pause::holder;
use exit::Failure;

/// The command `redbolt`: runs the process's arguments and returns the exit code.
pub fn main() -> ExitCode {
    panic::set_hook(Box::new(|info| {
        let what = info.to_string().replace('\n', " ");
        keyboard::give_back();
        terminal::show_cursor();
        output::note(format_args!("internal error, please report it: {what}"));
        std::process::exit(exit::SYSTEM.into());
    }));
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == child::HIDDEN => {
            return ExitCode::from(child::become_command(words));
        }
        Some(word) if word == holder::HIDDEN => {
            return ExitCode::from(holder::become_holder(words));
        }
        Some(word) if word == watchdog::HIDDEN => {
            let code = if watchdog::watch().is_ok() { 0 } else { exit::SYSTEM };
            return ExitCode::from(code);
        }
        Some(_) | None => {}
    }
    let json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    let ended = match parse() {
        Ok(Some(cli)) => dispatch(&cli),
        Ok(None) => Ok(()),
        Err(failure) => Err(failure),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(json);
            failure.exit_code()
        }
    }
}

/// The command line as clap knows it, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

fn dispatch(cli: &Cli) -> Result<(), Failure> {
    let global = &cli.global;
    match &cli.command {
        Command::Lock(args) => lock::run(global, args),
        Command::Unlock(args) if args.force => force::run(global, args),
        Command::Unlock(args) => unlock::run(global, args),
        Command::Extend(args) => extend::run(global, args),
        Command::Status(args) if args.watch => watch::run(global, args),
        Command::Status(args) => status::run(global, args),
        Command::Ls(args) => ls::run(global, args),
        Command::Top(args) => top::run(global, args),
        Command::Doctor(args) => doctor::run(global, args),
        Command::Bench(args) => bench::run(global, args),
        Command::Node(args) => node::run(global, args),
        Command::Run(args) => run::run(global, args),
        Command::Demo(args) => demo::run(global, args),
    }
}

/// The command line; `None` if it asked for help, which is then printed.
fn parse() -> Result<Option<Cli>, Failure> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(Some(cli)),
        Err(error) => error,
    };
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.print()?;
        return Ok(None);
    }
    Err(Failure::usage(usage_message(&error)))
}

/// clap's error on one line, without logins.
fn usage_message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || error.kind() == ErrorKind::MissingSubcommand
    {
        return "which command? redbolt --help lists them; redbolt demo is a good start".to_owned();
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let message = lines.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let message = message.trim_end_matches(" For more information, try '--help'.");
    let message = message.replace(" tip: ", "; tip: ");
    format!("{} ({} says how)", without_logins(&message), help())
}

/// The call that shows help for the named command, or for all.
fn help() -> String {
    let cli = Cli::command();
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    let named = words.find_map(|word| {
        let word = word.into_string().ok()?;
        cli.find_subcommand(&word).map(|_| word)
    });
    named.map_or_else(|| "redbolt --help".to_owned(), |name| format!("redbolt {name} --help"))
}

/// `text` with what stands between `://` and `@` left out.
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
