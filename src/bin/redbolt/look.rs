//! A client for the commands that look at nodes which may not be fit to lock on.

use std::time::Duration;

use redbolt::{Client, Config, ConnectError, now};

use crate::args::Global;
use crate::exit::Failure;
use crate::session::{CONNECT_LIMIT, is_known};
use crate::settings;

/// How often the client is driven while nodes connect. It must be driven by calls.
const STEP: Duration = Duration::from_millis(10);

/// A client whose nodes are connected or known not to be, and how many votes make a quorum.
pub(crate) fn client(global: &Global) -> Result<(Client, Config), Failure> {
    let config = settings::config(global)?;
    match Client::connect(config.clone()) {
        Ok(client) => return Ok((client, config)),
        Err(ConnectError::NoQuorum(_)) => {}
        Err(error) => return Err(error.into()),
    }
    // Without a quorum there is still something to see.
    let mut client = Client::open(config.clone())?;
    let end = now() + CONNECT_LIMIT;
    while now() < end && !client.nodes().iter().all(is_known) {
        std::thread::sleep(STEP);
        client.examine()?;
    }
    Ok((client, config))
}
