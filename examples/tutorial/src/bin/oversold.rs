//! Four sellers without a lock.

use redbolt::Client;
use rusqlite::Connection;
use shop::{Result, Shop};

fn main() -> Result {
    let sold = Shop::open()?.sell(one)?;
    println!("{sold} of 100 pieces sold");
    assert!(sold > 100, "sellers who overlap should have oversold");
    Ok(())
}

fn one(stock: &Connection, _: &Client) -> Result<usize> {
    let left = shop::read(stock)?;
    if left == 0 {
        return Ok(0);
    }
    shop::pay();
    shop::write(stock, left - 1)
}
