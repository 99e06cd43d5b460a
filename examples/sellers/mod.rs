//! Sellers in processes of their own that sell from one SQLite database.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rusqlite::Connection;

/// The database, as every seller opens it.
pub(crate) fn open(database: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(database)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;")?;
    Ok(connection)
}

/// Starts `count` sellers with these arguments, and waits until each has ended well. Returns how
/// many pieces they sold.
pub(crate) fn sell_all(
    count: usize,
    database: &Path,
    words: &[&str],
) -> Result<i64, Box<dyn std::error::Error>> {
    let sellers = (0..count).map(|_| {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("seller").arg(database).args(words).spawn()
    });
    let sellers = sellers.collect::<Result<Vec<Child>, _>>()?;
    let ends = sellers.into_iter().map(|mut seller| seller.wait()).collect::<Vec<_>>();
    for end in ends {
        if !end.as_ref().is_ok_and(ExitStatus::success) {
            return Err(format!("a seller ended with {end:?}").into());
        }
    }
    let sold = open(database)?;
    Ok(sold.query_row("SELECT count(*) FROM sales", [], |row| row.get(0))?)
}
