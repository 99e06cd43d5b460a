//! Four sellers with a lock and a fence; every thirtieth sale is stopped at the worst moment.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{thread, time::Duration};

use redbolt::{Client, LockOptions};
use rusqlite::Connection;
use shop::{Result, Shop};

const TTL: Duration = Duration::from_millis(500);

static TURNS: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

fn main() -> Result {
    let sold = Shop::open()?.sell(one)?;
    let refused = REFUSED.load(Relaxed);
    println!("{sold} of 100 pieces sold, {refused} late writes refused");
    assert_eq!(sold, 100);
    assert!(refused > 0, "a seller who was stopped should have been late");
    Ok(())
}

fn one(stock: &Connection, client: &Client) -> Result<usize> {
    let lease = client.lock("stock", LockOptions::new(TTL).fenced()).wait()?;
    let fence = i64::try_from(lease.fence().ok_or("no fence")?)?;
    // The first act: from here on the stock refuses every earlier holder.
    let touch = "UPDATE stock SET fence = ?1 WHERE fence <= ?1";
    if stock.execute(touch, [fence])? == 0 {
        return Ok(0);
    }
    let left = shop::read(stock)?;
    shop::pay();
    if left == 0 || lease.remaining() < Duration::from_millis(100) {
        return Ok(0);
    }
    if TURNS.fetch_add(1, Relaxed) % 30 == 10 {
        thread::sleep(TTL * 2); // stopped after the look at the lease and before the write
    }
    let write = "UPDATE stock SET pieces = ?1, fence = ?2 WHERE fence <= ?2";
    let sold = stock.execute(write, [left - 1, fence])?; // one row, or none: refused
    REFUSED.fetch_add(1 - sold, Relaxed);
    let _ = lease.unlock().wait(); // an error: the lock was over
    Ok(sold)
}
