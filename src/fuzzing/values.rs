//! Texts that people write: node addresses.

use super::source::Source;
use crate::address::{Address, Endpoint};
use crate::config::Config;

/// Stands for a password in the texts below; no message contains any part of it.
const SECRET: &str = "Zq7Xw9";

/// Any text, and any text with a login in it, is an address or an error. An address's name is its
/// address again, and no message shows the password.
pub fn address_parse(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if text.contains(SECRET) {
        return;
    }
    check_address(&text);

    let mut source = Source::new(input);
    let scheme = source.pick(&["redis://", "valkey://", "unix://", "rediss://", "", "://", "x:"]);
    let tail = source.pick(&["@h:1", "@h", "@[::1]:7/2", "@/run/r.sock", "@", "@h:x", "@h:1/x?y"]);
    let text = String::from_utf8_lossy(source.bytes(usize::MAX));
    // A password ends at the `@` before the place, however the place is misspelt.
    let (before, behind) = text.split_once('\n').unwrap_or((&text, ""));
    for text in [
        format!("{scheme}{before}:{SECRET}{tail}"),
        format!("{scheme}:{SECRET}{before}@{behind}"),
        format!("{scheme}{before}:{SECRET}@{behind}{tail}"),
    ] {
        check_address(&text);
    }
    let nodes = text.split('\n').map(str::to_owned);
    if let Ok(config) = Config::new(nodes.clone()) {
        assert_eq!(config.nodes().len(), nodes.count());
    }
}

fn check_address(text: &str) {
    let place_has_secret = text.rsplit('@').next().is_some_and(|place| place.contains(SECRET));
    match Address::parse(text) {
        Ok(address) => {
            let shown = format!("{address:?} {}", address.name());
            // Behind a slash it is part of a path.
            let login = text.split_once("://").map_or(text, |(_, rest)| rest);
            let login = login.split(['/', '?', '#']).next().unwrap_or_default();
            let has_login = login.contains(SECRET) && !place_has_secret;
            assert!(!shown.contains(SECRET) || !has_login, "{text:?}: {shown}");
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/".contains(&byte);
            if address.name().bytes().all(is_plain) {
                let again = match address.endpoint() {
                    Endpoint::Tcp { .. } => Address::parse(address.name()),
                    Endpoint::Unix(_) => Address::parse(&format!("unix://{}", address.name())),
                };
                let again = again.unwrap_or_else(|error| panic!("{text:?}: {error}"));
                assert_eq!(again.endpoint(), address.endpoint(), "{text:?}");
                assert_eq!(again.name(), address.name(), "{text:?}");
            }
        }
        Err(error) => {
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(SECRET) || place_has_secret, "{text:?}: {shown}");
            assert!(shown.len() < 4096, "{shown}");
        }
    }
}
