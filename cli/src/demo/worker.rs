//! One seller: a thread with its own client.

use std::time::Duration;

use redbolt::Instant;
use redbolt::{Client, Config, now};

use super::shop::Shop;
use crate::session::SHUTDOWN_LIMIT;

/// TTL of a sale's lock.
const TTL: Duration = Duration::from_secs(1);

/// When customers come: in waves of one per worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waves {
    pub(super) start: Instant,
    pub(super) interval: Duration,
}

/// Sells until the stock or the shop's time is over. Without a configuration, it sells without
/// locks.
pub(super) fn work(
    shop: &Shop,
    waves: Waves,
    worker: usize,
    config: Option<Config>,
) -> Result<(), redbolt::ConnectError> {
    let client = config.map(Client::connect).transpose()?;
    let mut next_at = waves.start;
    let mut wave = worker;
    while !shop.is_closed() {
        std::thread::sleep(now().until(next_at));
        next_at = next_at + waves.interval;
        wave += 1;
        let Some(shelf) = shop.shelf(wave) else { break };
        match &client {
            Some(client) => {
                sell_locked(shop, client, shelf);
                // All workers have the same nodes, so only the first reports.
                if worker == 0 {
                    client.notices().wait().into_iter().for_each(|notice| shop.tell(notice));
                }
            }
            None => shop.sell(shelf, || true),
        }
    }
    // The process may end right behind the workers, before an I/O thread has sent its releases.
    if let Some(client) = client {
        client.shutdown(SHUTDOWN_LIMIT).wait();
    }
    Ok(())
}

/// One sale under the lock of its shelf, written only while the lock is certainly held.
fn sell_locked(shop: &Shop, client: &Client, shelf: usize) {
    let asked = now();
    let Ok(lease) = client.lock(format!("redbolt:demo:shelf:{shelf}"), TTL).wait() else { return };
    shop.note_lock(now().saturating_since(asked), lease.votes().bits());
    shop.sell(shelf, || lease.is_valid());
    // The sale is done whatever the result, and the key ends with its TTL at the latest.
    let _ = lease.unlock().wait();
}
