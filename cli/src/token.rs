//! The token that `unlock` and `extend` take: as an argument, from a file or stdin, or from the
//! environment.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use crate::args::TokenArgs;
use crate::exit::Failure;
use crate::names::TOKEN_MAX;

/// The variable in which `run` leaves the token for its command; `unlock` and `extend` read it.
pub(crate) const TOKEN_VARIABLE: &str = "REDBOLT_TOKEN";

pub(crate) fn read(args: &TokenArgs) -> Result<Vec<u8>, Failure> {
    if let Some(token) = &args.token {
        return Ok(token.0.clone());
    }
    if let Some(file) = &args.token_file {
        let name = format!("--token-file {}", file.display());
        let line = first_line(file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        return checked(line, &format!("{name}: its first line"));
    }
    match std::env::var_os(TOKEN_VARIABLE).map(OsString::into_vec) {
        Some(token) if !token.is_empty() => checked(token, TOKEN_VARIABLE),
        Some(_) | None => Err(Failure::usage(
            "the token is missing: give it as TOKEN, in REDBOLT_TOKEN, or with --token-file FILE (- is stdin)",
        )),
    }
}

fn checked(token: Vec<u8>, place: &str) -> Result<Vec<u8>, Failure> {
    let what = match token.len() {
        1..=TOKEN_MAX => return Ok(token),
        0 => "empty",
        _ => "too long",
    };
    Err(Failure::usage(format!("{place} is {what}: a token has 1 to {TOKEN_MAX} bytes")))
}

fn first_line(file: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> =
        if file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(file)?) };
    let mut line = Vec::new();
    // One byte more than a token and its end of line, however much the source has.
    BufReader::new(source.take(TOKEN_MAX as u64 + 3)).read_until(b'\n', &mut line)?;
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}
