//! `redbolt`: the command line of the Redlock client.

use std::process::ExitCode;

fn main() -> ExitCode {
    redbolt_cli::main()
}
