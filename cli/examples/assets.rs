//! Writes the man pages of the `redbolt` command, for packagers.
//!
//! `cargo run -p redbolt-cli --example assets -- DIR` leaves in DIR `man/redbolt.1` and a page for
//! each command, `man/redbolt-run.1` and so on. It makes them from the command line of the binary,
//! and is not part of the binary, which stays small.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

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
    let man = dir.join("man");
    fs::create_dir_all(&man)?;
    clap_mangen::generate_to(redbolt_cli::command(), &man)?;
    println!("{}", dir.display());
    Ok(())
}
