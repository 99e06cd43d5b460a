//! An inventory service that sells from SQLite while its sellers are paused for longer than their
//! lock lasts. Without a check of fences it oversells; with the check it never does.
//!
//! The lock alone cannot help here. A seller may be paused between its look at the lease and the
//! write, for example by a suspended machine or a disk that hangs. When it goes on, another seller
//! has the lock, and has sold.
//!
//! So each write carries the fence of its lease, a number that grows with every holder. The
//! statement writes nothing if the row has seen a higher fence. The statements are those of
//! `docs/fencing.md`.
//!
//! Run it with `cargo run --example fenced_inventory`, or with `REDBOLT_NODES` set. It sells twice,
//! with the check and without; `-- checked` or `-- unchecked` does one of the two.

mod common;
mod sellers;

use std::path::Path;
use std::time::Duration;

use redbolt::{Client, Config, LockOptions, Retry};
use rusqlite::{Connection, named_params};

type Anything<T = ()> = Result<T, Box<dyn std::error::Error>>;

const SELLERS: usize = 4;
const STOCK: i64 = 100;
const TTL: Duration = Duration::from_millis(250);
/// How long a payment takes.
const PAYMENT: Duration = Duration::from_millis(1);
/// How often a seller is paused, and how many sales it makes before each pause.
const PAUSES: u32 = 3;
const SALES_BETWEEN: u32 = 5;
/// Longer than the lease lasts.
const PAUSE: Duration = Duration::from_millis(400);

fn main() -> Anything {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (checked, unchecked) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["seller", database, nodes, check] => {
            return sell(database.as_ref(), nodes, check == "checked");
        }
        [] => (true, true),
        ["checked"] => (true, false),
        ["unchecked"] => (false, true),
        _ => return Err("fenced_inventory takes checked, unchecked or nothing".into()),
    };
    let found = common::nodes()?;
    let directory = tempfile::tempdir()?;
    let urls = found.urls.join(",");
    println!("{STOCK} pieces, {SELLERS} sellers that are paused for longer than their lock lasts");
    if unchecked {
        let sold = run(&directory.path().join("unchecked.db"), &urls, "unchecked")?;
        println!("fences not checked  {sold} sold, {} oversold", (sold - STOCK).max(0));
        if sold <= STOCK {
            return Err("without the check stale writes should have oversold".into());
        }
    }
    if checked {
        let sold = run(&directory.path().join("checked.db"), &urls, "checked")?;
        println!("fences checked      {sold} sold, {} oversold", (sold - STOCK).max(0));
        if sold != STOCK {
            return Err("with the check every piece is sold once".into());
        }
    }
    Ok(())
}

/// Lets all sellers sell from a fresh database, and returns how many pieces they sold.
fn run(database: &Path, nodes: &str, check: &str) -> Anything<i64> {
    let connection = sellers::open(database)?;
    connection.execute_batch(
        "CREATE TABLE stock (id TEXT PRIMARY KEY, pieces INTEGER, fence BIGINT NOT NULL DEFAULT 0);
         CREATE TABLE sales (seller INTEGER);",
    )?;
    connection.execute("INSERT INTO stock (id, pieces) VALUES ('sku:42', ?1)", [STOCK])?;
    sellers::sell_all(SELLERS, database, &[nodes, check])
}

/// One seller, in a process of its own.
fn sell(database: &Path, nodes: &str, is_checked: bool) -> Anything {
    let mut connection = sellers::open(database)?;
    let patient = Retry::default().timeout(Duration::from_secs(60));
    let client = Client::connect(Config::new(nodes.split(','))?.retry(patient))?;
    let mut sales = 0;
    loop {
        let lease = client.lock("stock:sku:42", LockOptions::new(TTL).fenced()).wait()?;
        let fence = i64::try_from(lease.fence().ok_or("the lock was asked for with a fence")?)?;
        // The holder's first act: from now on no earlier holder can write.
        if is_checked && !touch(&connection, fence)? {
            continue;
        }
        let left = pieces(&connection)?;
        if left == 0 {
            return Ok(());
        }
        std::thread::sleep(PAYMENT);
        if !lease.is_valid() {
            continue;
        }
        sales += 1;
        if sales % SALES_BETWEEN == 0 && sales <= PAUSES * SALES_BETWEEN {
            // The holder cannot notice the pause: it has just looked at its lease.
            std::thread::sleep(PAUSE);
        }
        // A refused write means that the lock is over and another seller is at work, so this seller
        // sells nothing.
        let _is_sold = write(&mut connection, left - 1, fence, is_checked)?;
        // An error means that the lock was over before. If fences are checked, the stock has
        // already refused the late write.
        let _ = lease.unlock().wait();
    }
}

/// Tells the row of a new holder. Returns false if the row has seen a later holder.
fn touch(connection: &Connection, fence: i64) -> rusqlite::Result<bool> {
    let changed = connection.execute(
        "UPDATE stock SET fence = :fence WHERE id = :id AND fence <= :fence",
        named_params! { ":id": "sku:42", ":fence": fence },
    )?;
    Ok(changed == 1)
}

fn pieces(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT pieces FROM stock WHERE id = 'sku:42'", [], |row| row.get(0))
}

/// Writes the pieces that are left, and the sale, in one transaction. Returns false if the row has
/// seen a later holder.
fn write(
    connection: &mut Connection,
    pieces: i64,
    fence: i64,
    is_checked: bool,
) -> rusqlite::Result<bool> {
    let statement = if is_checked {
        "UPDATE stock SET pieces = :pieces, fence = :fence WHERE id = :id AND fence <= :fence"
    } else {
        "UPDATE stock SET pieces = :pieces, fence = :fence WHERE id = :id"
    };
    let transaction = connection.transaction()?;
    let parameters = named_params! { ":id": "sku:42", ":pieces": pieces, ":fence": fence };
    let is_sold = transaction.execute(statement, parameters)? == 1;
    if is_sold {
        transaction.execute("INSERT INTO sales VALUES (?1)", [std::process::id()])?;
    }
    transaction.commit()?;
    Ok(is_sold)
}
