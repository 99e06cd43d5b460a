//! The token of one or several locks, as `lock` prints it. `unlock` and `extend` take it as an option,
//! from a file or stdin, or from the environment.
//!
//! The token of several keys is their tokens in the order of the keys' bytes, joined by commas. If
//! all these tokens are equal, `lock` prints that token once.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use redbolt::Lease;

use crate::args::TokenArgs;
use crate::exit::Failure;
use crate::names::{Name, TOKEN_MAX, names};

/// The variable in which `run` leaves the token for its command; `unlock` and `extend` read it.
pub(crate) const TOKEN_VARIABLE: &str = "REDBOLT_TOKEN";

/// The most keys of a set.
const KEYS_MAX: usize = 64;

/// A key and its token.
pub(crate) type Named<'a> = (&'a [u8], Vec<u8>);

/// The token of all keys of a lease.
pub(crate) fn of(lease: &Lease) -> Vec<u8> {
    let tokens = lease.keys().filter_map(|key| lease.token_of(key));
    let mut tokens: Vec<_> = tokens.map(|token| token.as_bytes().to_vec()).collect();
    if tokens.iter().all(|token| Some(token) == tokens.first()) {
        tokens.truncate(1);
    }
    tokens.join(&b',')
}

/// The locks of these keys, in the order of the keys' bytes, each with its token.
pub(crate) fn locks<'a>(keys: &'a [Name], args: &TokenArgs) -> Result<Vec<Named<'a>>, Failure> {
    let keys = names(keys);
    let (text, place) = read(args)?;
    // A token of another library may hold a comma.
    let is_set = keys.len() > 1;
    let tokens: Vec<_> = text.split(|&byte| is_set && byte == b',').collect();
    let (count, given) = (keys.len(), tokens.len());
    if count > KEYS_MAX {
        return Err(Failure::usage(format!(
            "{count} keys are too many: 1 to {KEYS_MAX} are allowed"
        )));
    }
    if given != 1 && given != count {
        return Err(Failure::usage(format!(
            "{place} has {given} tokens for {count} keys: name the keys that redbolt lock printed with them"
        )));
    }
    for token in &tokens {
        let what = match token.len() {
            1..=TOKEN_MAX => continue,
            0 => "empty",
            _ => "too long",
        };
        let message = format!("a token in {place} is {what}: it has 1 to {TOKEN_MAX} bytes");
        return Err(Failure::usage(message));
    }
    Ok(keys.into_iter().zip(tokens.into_iter().map(<[u8]>::to_vec).cycle()).collect())
}

/// The text of the token, and where it was found.
fn read(args: &TokenArgs) -> Result<(Vec<u8>, String), Failure> {
    if let Some(token) = &args.token {
        return Ok((token.clone().into_vec(), "--token".to_owned()));
    }
    if let Some(file) = &args.token_file {
        let name = format!("--token-file {}", file.display());
        let line = first_line(file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        return Ok((line, format!("the first line of {name}")));
    }
    match std::env::var_os(TOKEN_VARIABLE).map(OsString::into_vec) {
        Some(token) if !token.is_empty() => Ok((token, TOKEN_VARIABLE.to_owned())),
        Some(_) | None => Err(Failure::usage(
            "the token is missing: give it in REDBOLT_TOKEN, by --token-file FILE (- is stdin), or by \
             --token TOKEN",
        )),
    }
}

fn first_line(file: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> =
        if file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(file)?) };
    let mut line = Vec::new();
    // One byte more than the tokens and their end of line, however much the source has.
    let most = KEYS_MAX * (TOKEN_MAX + 1) + 2;
    BufReader::new(source.take(most as u64)).read_until(b'\n', &mut line)?;
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}
