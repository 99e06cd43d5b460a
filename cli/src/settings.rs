//! The configuration that the global options describe.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::time::Duration;

use redbolt::inspect::NodeMask;
use redbolt::{Config, FailoverGuard, Quorum, RestartGuard};

use crate::args::{Global, Switch};
use crate::exit::Failure;

/// The name of clients that got no other.
const PROGRAM: &str = "redbolt";

/// The clients' default for the longest TTL.
const MAX_TTL: Duration = Duration::from_secs(30);

/// The clients' default for the distance between a node's clock and their own.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// The configuration of a command that needs nodes.
pub(crate) fn config(global: &Global) -> Result<Config, Failure> {
    let nodes = global.nodes.as_ref().ok_or_else(|| {
        Failure::usage(
            "no nodes: name them with --nodes redis://HOST:PORT,.. or in REDBOLT_NODES \
             (redbolt node starts some to play with)",
        )
    })?;
    config_of(global, nodes)
}

/// The configuration of a command that knows its nodes, comma-separated.
pub(crate) fn config_of(global: &Global, nodes: &str) -> Result<Config, Failure> {
    let mut config = Config::new(list(nodes)?)?.client_name(PROGRAM);
    if let Some(nodes) = &global.next_nodes {
        config = config.next_nodes(list(nodes)?)?;
    }
    if let Some(votes) = global.quorum {
        config = config.quorum(Quorum::AtLeast(votes));
    }
    // Checked here too, so that a mistake shows before anything is opened.
    quorums(global, &config)?;
    if let Some(ttl) = global.max_ttl {
        config = config.max_ttl(ttl);
    }
    if let Some(timeout) = global.node_timeout {
        config = config.node_timeout(timeout);
    }
    config = config.max_clock_skew(max_clock_skew(global));
    if let Some(ttl) = global.fence_ttl {
        config = config.fence_ttl(ttl);
    }
    if global.restart_guard == Some(Switch::Off) {
        config = config.restart_guard(RestartGuard::Off);
    }
    if global.failover_guard == Some(Switch::Off) {
        config = config.failover_guard(FailoverGuard::Off);
    }
    if let Some(prefix) = &global.prefix {
        config = config.key_prefix(prefix.as_bytes());
    }
    if let Some(user) = &global.user {
        config = config.username(user.as_str());
    }
    if let Some(file) = &global.password_file {
        let password = fs::read_to_string(file).map_err(|error| {
            Failure::usage(format!("--password-file {}: {error}", file.display()))
        })?;
        let password = password.lines().next().unwrap_or_default();
        if password.is_empty() {
            let message = format!("--password-file {}: its first line is empty", file.display());
            return Err(Failure::usage(message));
        }
        config = config.password(password);
    } else if global.user.is_some() {
        return Err(Failure::usage("--user needs --password-file"));
    }
    with_tls(global, config)
}

/// The addresses of a list.
fn list(nodes: &str) -> Result<impl Iterator<Item = &str>, Failure> {
    let nodes = nodes.trim();
    let list = nodes.split(',').filter(|_| !nodes.is_empty());
    if list.clone().any(|node| node.trim().is_empty()) {
        return Err(Failure::usage(
            "an address is empty: addresses are separated by commas alone, without spaces",
        ));
    }
    if list.clone().any(|node| node.trim().contains([' ', ';']) && !node.contains("unix://")) {
        return Err(Failure::usage(
            "addresses are separated by commas: redis://HOST:PORT,redis://HOST:PORT",
        ));
    }
    Ok(list)
}

/// The longest TTL that any client uses.
pub(crate) fn max_ttl(global: &Global) -> Duration {
    global.max_ttl.unwrap_or(MAX_TTL)
}

/// The TTL that was given, else `default` or the longest TTL of any client, whichever is shorter.
pub(crate) fn ttl(global: &Global, given: Option<Duration>, default: Duration) -> Duration {
    given.unwrap_or_else(|| default.min(max_ttl(global)))
}

/// How far a node's clock may be from this machine's for a lock with a fence.
pub(crate) fn max_clock_skew(global: &Global) -> Duration {
    global.max_clock_skew.unwrap_or(MAX_CLOCK_SKEW)
}

/// The configuration with the certificates that the options name.
#[cfg(feature = "tls")]
fn with_tls(global: &Global, config: Config) -> Result<Config, Failure> {
    let read = |option: &str, file: &Option<PathBuf>| {
        let read = |file: &PathBuf| {
            let failed = |error| Failure::usage(format!("{option} {}: {error}", file.display()));
            fs::read(file).map_err(failed)
        };
        file.as_ref().map(read).transpose()
    };
    let ca = read("--tls-ca", &global.tls_ca)?;
    let cert = read("--tls-cert", &global.tls_cert)?;
    let key = read("--tls-key", &global.tls_key)?;
    if ca.is_none() && cert.is_none() && key.is_none() {
        return Ok(config);
    }
    let mut tls = redbolt::Tls::new();
    if let Some(ca) = ca {
        tls = tls.ca(ca);
    }
    match (cert, key) {
        (Some(cert), Some(key)) => tls = tls.identity(cert, key),
        (None, None) => {}
        (Some(_), None) => return Err(Failure::usage("--tls-cert needs --tls-key")),
        (None, Some(_)) => return Err(Failure::usage("--tls-key needs --tls-cert")),
    }
    Ok(config.tls(tls))
}

/// The nodes of each list, and how many of their votes the options ask for.
pub(crate) fn quorums(global: &Global, config: &Config) -> Result<Vec<(NodeMask, usize)>, Failure> {
    let quorum = global.quorum.map_or(Quorum::Majority, Quorum::AtLeast);
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let votes = |nodes: NodeMask| Ok((nodes, count(quorum.votes(count(nodes.count()))?)));
    config.lists().map(votes).collect()
}

/// Refuses options that need TLS.
#[cfg(not(feature = "tls"))]
fn with_tls(global: &Global, config: Config) -> Result<Config, Failure> {
    let given = [
        ("--tls-ca", &global.tls_ca),
        ("--tls-cert", &global.tls_cert),
        ("--tls-key", &global.tls_key),
    ];
    match given.into_iter().find(|(_, file)| file.is_some()) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option}: this redbolt has no TLS: build it with --features tls"
        ))),
        None => Ok(config),
    }
}
