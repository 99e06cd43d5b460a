//! A client for the commands that look at nodes, even if the nodes are not fit for locks.

use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, now};

use crate::args::Global;
use crate::exit::Failure;
use crate::session::{CONNECT_LIMIT, is_known, node_timeout};
use crate::settings;
use crate::signals::Signals;

/// How often the command looks while nodes connect.
const STEP: Duration = Duration::from_millis(1);

/// The time between two looks.
pub(crate) fn interval(interval: Duration) -> Result<Duration, Failure> {
    if interval.is_zero() {
        return Err(Failure::usage("--interval must be more than zero"));
    }
    Ok(interval)
}

/// A client for `status`, once a quorum can vote and the other nodes have had their `node_timeout`;
/// without a quorum as [`opened`].
pub(crate) fn client(global: &Global) -> Result<(Client, Config), Failure> {
    client_until(global, None)
}

/// As [`client`]. It fails once one of `signals` has arrived.
pub(crate) fn client_until(
    global: &Global,
    signals: Option<&Signals>,
) -> Result<(Client, Config), Failure> {
    let config = settings::config(global)?;
    let client = settled(config.clone(), node_timeout(global), Client::is_ready, signals)?;
    Ok((client, config))
}

/// A client with a quorum that can vote, as [`Client::connect`] gives it.
pub(crate) fn connected(
    global: &Global,
    config: Config,
    signals: &Signals,
) -> Result<Client, Failure> {
    let client = settled(config, node_timeout(global), Client::is_ready, Some(signals))?;
    client.ready(Duration::ZERO).wait()?;
    Ok(client)
}

/// A client of these settings, once each node is connected, or known not to be, or has had its
/// time.
pub(crate) fn opened(config: Config) -> Result<Client, Failure> {
    settled(config, CONNECT_LIMIT, |_| false, None)
}

fn settled(
    config: Config,
    patience: Duration,
    is_enough: impl Fn(&Client) -> bool,
    signals: Option<&Signals>,
) -> Result<Client, Failure> {
    let mut known = vec![false; config.nodes().len()];
    let client = Client::open(config)?;
    let end = now() + CONNECT_LIMIT;
    let mut enough_since = None;
    loop {
        for (known, node) in known.iter_mut().zip(client.nodes().wait()) {
            *known |= is_known(&node);
        }
        let time = now();
        if is_enough(&client) {
            enough_since.get_or_insert(time);
        }
        let is_over = enough_since.is_some_and(|since| since + patience <= time) || time >= end;
        if is_over || known.iter().all(|&known| known) {
            return Ok(client);
        }
        if let Some(signal) = signals.and_then(Signals::next) {
            return Err(Failure::signal(signal));
        }
        thread::sleep(STEP);
    }
}
