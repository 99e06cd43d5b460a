//! A client for the commands that look at nodes which may not be fit to lock on.

use std::time::Duration;

use redbolt::{Client, Config, ConnectError, now};

use crate::args::Global;
use crate::exit::Failure;
use crate::session::{CONNECT_LIMIT, is_known};
use crate::settings;

/// How often the client is driven while nodes connect. It must be driven by calls.
const STEP: Duration = Duration::from_millis(10);

/// For nodes that do connect, where too few do for `status` to begin with a quorum.
const MOMENT: Duration = Duration::from_millis(100);

/// A client for `status`: whoever can vote within a moment is connected.
pub(crate) fn client(global: &Global) -> Result<(Client, Config), Failure> {
    let config = settings::config(global)?;
    match Client::connect(config.clone()) {
        Ok(client) => Ok((client, config)),
        // Without a quorum there is still something to see.
        Err(ConnectError::NoQuorum(_)) => client_within(global, MOMENT),
        Err(error) => Err(error.into()),
    }
}

/// A client for `doctor`: each node is connected, or known not to be, or has had its time.
pub(crate) fn patient_client(global: &Global) -> Result<(Client, Config), Failure> {
    client_within(global, CONNECT_LIMIT)
}

fn client_within(global: &Global, limit: Duration) -> Result<(Client, Config), Failure> {
    let config = settings::config(global)?;
    let mut client = Client::open(config.clone())?;
    let end = now() + limit;
    let mut known = vec![false; config.nodes().len()];
    loop {
        for (known, node) in known.iter_mut().zip(client.nodes()) {
            *known |= is_known(&node);
        }
        if known.iter().all(|&known| known) || now() >= end {
            return Ok((client, config));
        }
        std::thread::sleep(STEP);
        client.examine()?;
    }
}
