//! `redbolt completions`: the script with which a shell completes the command line.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete::{Shell as Known, generate};

use crate::args::{Cli, CompletionsArgs, Shell};
use crate::exit::Failure;

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let shell = match args.shell {
        Shell::Bash => Known::Bash,
        Shell::Zsh => Known::Zsh,
        Shell::Fish => Known::Fish,
    };
    // Writes into memory first: the generator panics if its reader has gone.
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "redbolt", &mut text);
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    Ok(out.flush()?)
}
