//! Writes man pages and shell completions of the `redbolt` command, for packagers.
//!
//! `cargo run -p redbolt-cli --example assets -- DIR` leaves in DIR:
//!
//! - `man/redbolt.1` and a page for each command, `man/redbolt-run.1` and so on;
//! - `completions/redbolt.bash`, `completions/_redbolt` (zsh), `completions/redbolt.fish`.
//!
//! They are made from the same command line as the binary, and are no part of it: it stays small.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::{Shell, generate_to};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let (Some(dir), None) = (words.next(), words.next()) else {
        eprintln!("which directory? cargo run -p redbolt-cli --example assets -- target/assets");
        return ExitCode::from(64);
    };
    match write(PathBuf::from(dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("assets: {error}");
            ExitCode::from(71)
        }
    }
}

fn write(dir: PathBuf) -> std::io::Result<()> {
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(redbolt_cli::command(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut redbolt_cli::command(), "redbolt", &completions)?;
    }
    println!("{}", dir.display());
    Ok(())
}
