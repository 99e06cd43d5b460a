//! `redbolt`: the command line of the Redlock client [Redbolt](https://docs.rs/redbolt).
//!
//! It is a library so that the example `assets` sees the same command line as the binary; it
//! promises nothing to other programs. Each command has a module of its name, and some have more.
//! `args` and `bench_args` have the options, `exit` the ways in which commands end.

#![forbid(unsafe_code)]

mod advice;
mod agreement;
mod alarm;
mod args;
mod bench;
mod bench_args;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod cgroup;
mod child;
mod clock;
mod completions;
mod config;
mod demo;
mod descendants;
mod doctor;
mod duration;
mod elect;
mod examined;
mod exchange;
mod exit;
mod extend;
mod fitness;
mod force;
mod holders;
mod inspect;
mod keyboard;
mod leader;
mod lock;
mod look;
mod ls;
mod names;
mod node;
mod output;
mod own_binary;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod processes;
mod progress;
mod reload;
mod remedy;
mod run;
mod session;
mod settings;
mod signals;
mod sources;
mod status;
mod table;
mod terminal;
mod times;
mod token;
mod top;
mod unlock;
mod usage;
mod waiting;
mod watch;
mod watchdog;
mod work;

use std::panic;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command, ConfigArgs, Global};
use exit::Failure;
use sources::Origins;

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
        Some(word) if word == watchdog::HIDDEN => {
            let code = if watchdog::watch(words).is_ok() { 0 } else { exit::SYSTEM };
            return ExitCode::from(code);
        }
        Some(_) | None => {}
    }
    let json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    let ended = parse().and_then(|cli| cli.map_or(Ok(()), dispatch));
    let Err(failure) = ended else { return ExitCode::SUCCESS };
    failure.report(json);
    ExitCode::from(failure.code)
}

/// The command line as clap knows it, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    let Cli { mut global, command } = cli;
    // The profiles of shells ask for completions, whatever is wrong with the settings.
    let has_settings = !matches!(command, Command::Completions(_));
    let origins = if has_settings { sources::fill(&mut global)? } else { Origins::default() };
    let global = &global;
    call(global, &origins, &command).map_err(|failure| origins.named(failure))
}

fn call(global: &Global, origins: &Origins, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Config(ConfigArgs {}) => config::run(global, origins),
        Command::Lock(args) => lock::run(global, args),
        Command::Unlock(args) if args.force => force::run(global, args),
        Command::Unlock(args) => unlock::run(global, args),
        Command::Extend(args) => extend::run(global, args),
        Command::Status(args) if args.watch => {
            watch::run(global, args).or_else(Failure::unless_interrupted)
        }
        Command::Status(args) => status::run(global, args),
        Command::Ls(args) => ls::run(global, args),
        Command::Top(args) => top::run(global, args).or_else(Failure::unless_interrupted),
        Command::Doctor(args) => doctor::run(global, args),
        Command::Bench(args) => bench::run(global, args),
        Command::Node(args) => node::run(global, args),
        Command::Run(args) => run::run(global, args),
        Command::Elect(args) => elect::run(global, args),
        Command::Leader(args) => leader::run(global, args),
        Command::Demo(args) => demo::run(global, args),
        Command::Completions(args) => completions::run(args),
    }
}

/// The command line; `None` if the user asked for help, which is then printed.
fn parse() -> Result<Option<Cli>, Failure> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(Some(cli)),
        Err(error) => error,
    };
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.print()?;
        return Ok(None);
    }
    Err(Failure::usage(usage::message(&error)))
}
