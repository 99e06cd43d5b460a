//! Four sellers with a lock, one at a time.

use std::time::Duration;

use redbolt::Client;
use rusqlite::Connection;
use shop::{Result, Shop};

fn main() -> Result {
    let sold = Shop::open()?.sell(one)?;
    println!("{sold} of 100 pieces sold");
    assert_eq!(sold, 100);
    Ok(())
}

fn one(stock: &Connection, client: &Client) -> Result<usize> {
    let lease = client.lock("stock", Duration::from_secs(2)).wait()?; // waits for its turn
    let left = shop::read(stock)?;
    if left == 0 {
        return Ok(0); // the lease is dropped, which releases the lock
    }
    shop::pay();
    let sold = shop::write(stock, left - 1)?;
    lease.unlock().wait()?;
    Ok(sold)
}
