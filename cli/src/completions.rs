//! `redbolt completions`: the script with which a shell completes the command line.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete::generate;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::Failure;

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    // Writes into memory first: the generator panics if its reader has gone.
    let mut text = Vec::new();
    generate(args.shell, &mut Cli::command(), "redbolt", &mut text);
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    Ok(out.flush()?)
}
