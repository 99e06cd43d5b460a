//! Keys, tokens and patterns as arguments.

use std::os::unix::ffi::OsStringExt as _;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::output::shown;

/// A key or token: any bytes that an argument can hold.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) Vec<u8>);

/// The names of the locks, each once and in the order of their bytes.
pub(crate) fn names(keys: &[Name]) -> Vec<&[u8]> {
    let mut keys: Vec<&[u8]> = keys.iter().map(|key| &*key.0).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Takes a name of 1 to `most` bytes.
pub(crate) fn name_parser(most: usize) -> impl TypedValueParser<Value = Name> {
    OsStringValueParser::new().try_map(move |text| {
        let bytes = text.into_vec();
        if bytes.is_empty() || bytes.len() > most {
            return Err(format!("it has {} bytes: 1 to {most} are allowed", bytes.len()));
        }
        Ok(Name(bytes))
    })
}

/// The suffix of the key in which the holder of a lock writes its name.
pub(crate) const CLAIM: &[u8] = b":elected";

/// The suffixes of the keys that the nodes keep beside a lock, and their content.
const BESIDE: [(&[u8], &str); 2] =
    [(b":fence", "the last fence of the lock"), (CLAIM, "the name of the holder of")];

/// Whether this key belongs to a lock and is not a lock itself.
pub(crate) fn is_beside(key: &[u8]) -> bool {
    BESIDE.iter().any(|(suffix, _)| key.ends_with(suffix))
}

/// The beginning of the keys in which clients note since when a node is a master.
pub(crate) const MARKER: &[u8] = b"redbolt:since:";

pub(crate) fn key_parser() -> impl TypedValueParser<Value = Name> {
    name_parser(KEY_MAX).try_map(|key: Name| {
        if key.0.starts_with(MARKER) {
            return Err(
                "it is no lock: in this key clients note since when a node is a master".to_owned()
            );
        }
        for (suffix, what) in BESIDE {
            if let Some(lock) = key.0.strip_suffix(suffix) {
                let lock = shown(lock);
                return Err(format!("it is no lock: in this key the nodes keep {what} '{lock}'"));
            }
        }
        Ok(key)
    })
}

/// The most bytes of a key, and of a pattern for keys.
pub(crate) const KEY_MAX: usize = 4096;

/// The most bytes of a token.
pub(crate) const TOKEN_MAX: usize = 255;

/// The most slots of a lock.
pub(crate) const SLOTS_MAX: u8 = 63;

pub(crate) fn slots_parser() -> impl TypedValueParser<Value = u8> {
    clap::value_parser!(u8).range(1..=i64::from(SLOTS_MAX))
}
