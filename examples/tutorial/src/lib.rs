//! A shop: 100 pieces in SQLite, four sellers, and the nodes that hold their locks.

use std::{env, thread, time::Duration};

use redbolt::{Client, Config};
use redbolt_embedded::Nodes;
use rusqlite::Connection;
use tempfile::TempDir;

/// A result whose error may be of any kind and come from any thread.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The directory of the stock, and five nodes in this process.
pub struct Shop(TempDir, Nodes);

impl Shop {
    /// Fills the stock and starts the nodes.
    pub fn open() -> Result<Self> {
        let shop = Self(tempfile::tempdir()?, Nodes::start(5)?);
        shop.stock()?.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE stock (pieces INTEGER, fence INTEGER NOT NULL DEFAULT 0);
             INSERT INTO stock (pieces) VALUES (100)",
        )?;
        Ok(shop)
    }

    /// A connection to the stock.
    pub fn stock(&self) -> Result<Connection> {
        Ok(Connection::open(self.0.path().join("stock.db"))?)
    }

    /// A client of the nodes, or of those in `REDBOLT_NODES`. No lock may last longer than 5 s.
    pub fn client(&self) -> Result<Client> {
        let config = match env::var("REDBOLT_NODES") {
            Ok(list) => Config::new(list.split(','))?,
            Err(_) => Config::new(self.1.urls())?,
        };
        Ok(Client::connect(config.max_ttl(Duration::from_secs(5)))?)
    }

    /// Four sellers sell at once, each piece by a call of `one`, until nothing is left. Returns how
    /// many pieces they sold.
    pub fn sell(&self, one: fn(&Connection, &Client) -> Result<usize>) -> Result<usize> {
        let seller = || {
            let (stock, client, mut sold) = (self.stock()?, self.client()?, 0);
            while read(&stock)? > 0 {
                sold += one(&stock, &client)?;
            }
            Ok(sold)
        };
        thread::scope(|scope| {
            let sellers: Vec<_> = (0..4).map(|_| scope.spawn(seller)).collect();
            sellers.into_iter().map(|seller| seller.join().expect("a seller panicked")).sum()
        })
    }
}

/// How many pieces are left.
pub fn read(stock: &Connection) -> Result<i64> {
    Ok(stock.query_row("SELECT pieces FROM stock", [], |row| row.get(0))?)
}

/// Writes how many pieces are left.
pub fn write(stock: &Connection, pieces: i64) -> Result<usize> {
    Ok(stock.execute("UPDATE stock SET pieces = ?1", [pieces])?)
}

/// The customer pays for a piece.
pub fn pay() {
    thread::sleep(Duration::from_millis(2));
}
