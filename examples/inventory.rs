//! An inventory service that sells from SQLite, in several processes. Without the lock it
//! oversells; with the lock it never does.
//!
//! A sale reads the stock, makes the payment, and writes the stock back. No database transaction
//! may last as long as a payment, so other sellers work between the read and the write. The lock on
//! the article keeps them out, in every process and on every machine.
//!
//! Run it with `cargo run --example inventory`, or with `REDBOLT_NODES` set.

mod common;
mod sellers;

use std::path::Path;
use std::time::Duration;

use redbolt::{Client, Config, Retry};
use rusqlite::Connection;

type Anything = Result<(), Box<dyn std::error::Error>>;

const SELLERS: usize = 4;
const STOCK: i64 = 200;
const TTL: Duration = Duration::from_secs(5);
/// How long a payment takes.
const PAYMENT: Duration = Duration::from_millis(1);

fn main() -> Anything {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["seller", database, nodes] => return sell_with_lock(database.as_ref(), nodes),
        ["seller", database] => return sell_without(database.as_ref()),
        _ => {}
    }
    let found = common::nodes()?;
    let directory = tempfile::tempdir()?;
    let without = run(&directory.path().join("without.db"), None)?;
    let with = run(&directory.path().join("with.db"), Some(&found.urls.join(",")))?;
    println!("{STOCK} pieces, {SELLERS} sellers in processes of their own");
    println!("without a lock  {without} sold, {} oversold", (without - STOCK).max(0));
    println!("with the lock   {with} sold, {} oversold", (with - STOCK).max(0));
    if with != STOCK {
        return Err("with the lock every piece is sold once".into());
    }
    if without <= STOCK {
        return Err("without a lock sellers that overlap should have oversold".into());
    }
    Ok(())
}

/// Lets all sellers sell from a fresh database, and returns how many pieces they sold.
fn run(database: &Path, nodes: Option<&str>) -> Result<i64, Box<dyn std::error::Error>> {
    let connection = sellers::open(database)?;
    connection.execute_batch(
        "CREATE TABLE stock (article TEXT PRIMARY KEY, pieces INTEGER);
         CREATE TABLE sales (seller INTEGER);",
    )?;
    connection.execute("INSERT INTO stock VALUES ('sku:42', ?1)", [STOCK])?;
    sellers::sell_all(SELLERS, database, nodes.as_slice())
}

fn sell_with_lock(database: &Path, nodes: &str) -> Anything {
    let connection = sellers::open(database)?;
    // The release of one seller wakes the next; waiting sellers give up after a minute.
    let patient = Retry::default().timeout(Duration::from_secs(60));
    let client = Client::connect(Config::new(nodes.split(','))?.retry(patient))?;
    loop {
        let is_left = client.with_lock("stock:sku:42", TTL, |held| {
            let Some(left) = begin_sale(&connection)? else { return Ok(false) };
            // The check comes right before the effect: there must be enough time for it.
            if held.remaining() < Duration::from_millis(500) {
                return Err::<_, Box<dyn std::error::Error>>("the sale took too long".into());
            }
            end_sale(&connection, left)?;
            Ok(true)
        })?;
        if !is_left {
            return Ok(());
        }
    }
}

fn sell_without(database: &Path) -> Anything {
    let connection = sellers::open(database)?;
    while let Some(left) = begin_sale(&connection)? {
        end_sale(&connection, left)?;
    }
    Ok(())
}

/// Reads how many pieces are left and makes the payment for one; `None` if there are none.
fn begin_sale(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let read = "SELECT pieces FROM stock WHERE article = 'sku:42'";
    let left: i64 = connection.query_row(read, [], |row| row.get(0))?;
    if left == 0 {
        return Ok(None);
    }
    std::thread::sleep(PAYMENT);
    Ok(Some(left))
}

/// Writes one piece fewer than the seller has read.
fn end_sale(connection: &Connection, left: i64) -> rusqlite::Result<()> {
    connection.execute("UPDATE stock SET pieces = ?1 WHERE article = 'sku:42'", [left - 1])?;
    connection.execute("INSERT INTO sales VALUES (?1)", [std::process::id()])?;
    Ok(())
}
