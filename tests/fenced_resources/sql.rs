//! The statements for SQL, on any [`Database`]; `sqlite.rs` and `postgres.rs` bring their own.

use super::guide::statement;

/// A database with the row `sku:42` in the table `stock`, which has no column for the fence yet.
pub(crate) trait Database {
    /// Runs a statement with the values that it names; returns how many rows changed.
    fn change(&mut self, sql: &str, values: Values) -> usize;
    /// The first column of a query, whose values are all numbers.
    fn numbers(&mut self, sql: &str, values: Values) -> Vec<i64>;
}

pub(crate) const TABLE: &str = "CREATE TABLE stock (id VARCHAR(64) PRIMARY KEY, pieces BIGINT)";
pub(crate) const ROW: &str = "INSERT INTO stock (id, pieces) VALUES ('sku:42', 10)";

/// A realistic fence: microseconds since 1970.
const FIRST: i64 = 1_790_000_000_123_456;
const NEXT: i64 = FIRST + 1;

/// The values that statements name `:id`, `:key`, `:pieces` and `:fence`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    pub(crate) id: &'static str,
    pub(crate) pieces: i64,
    pub(crate) fence: i64,
}

const fn write(pieces: i64, fence: i64) -> Values {
    Values { id: "sku:42", pieces, fence }
}

fn with_fences(database: &mut impl Database) {
    database.change(statement("sql-column"), write(0, 0));
    database.change(statement("sql-fences"), write(0, 0));
}

fn pieces(database: &mut impl Database, id: &'static str) -> Vec<i64> {
    let values = Values { id, ..write(0, 0) };
    database.numbers("SELECT pieces FROM stock WHERE id = :id", values)
}

/// A holder writes twice, the next one writes, and the first one wakes up.
pub(crate) fn refuses_a_stale_write(database: &mut impl Database) {
    with_fences(database);
    let sql = statement("sql-write");
    assert_eq!(database.change(sql, write(9, FIRST)), 1);
    assert_eq!(database.change(sql, write(8, FIRST)), 1, "the same fence");
    assert_eq!(database.change(sql, write(7, NEXT)), 1, "a higher fence");
    assert_eq!(database.change(sql, write(1, FIRST)), 0, "a stale fence");
    assert_eq!(pieces(database, "sku:42"), [7]);
    assert_eq!(database.change(sql, write(6, NEXT)), 1, "the same fence behind a stale one");
    assert_eq!(pieces(database, "sku:42"), [6]);
}

pub(crate) fn tells_a_refused_write_from_a_missing_row(database: &mut impl Database) {
    with_fences(database);
    let sql = statement("sql-write");
    assert_eq!(database.change(sql, write(7, NEXT)), 1);
    assert_eq!(database.change(sql, write(1, FIRST)), 0);
    assert_eq!(database.numbers(statement("sql-seen"), write(1, FIRST)), [NEXT]);
    let missing = Values { id: "sku:43", ..write(1, FIRST) };
    assert_eq!(database.change(sql, missing), 0);
    assert_eq!(database.numbers(statement("sql-seen"), missing), []);
}

/// Shows the guide's claim about a holder's first act, with and without it.
pub(crate) fn a_touch_keeps_out_what_would_be_accepted_without(database: &mut impl Database) {
    with_fences(database);
    let sql = statement("sql-write");
    assert_eq!(database.change(sql, write(9, FIRST)), 1);
    assert_eq!(database.change(sql, write(8, FIRST)), 1, "the next holder has not touched yet");
    assert_eq!(database.change(statement("sql-touch"), write(0, NEXT)), 1);
    assert_eq!(pieces(database, "sku:42"), [8], "a touch changes no value");
    assert_eq!(database.change(statement("sql-touch"), write(0, NEXT)), 1, "the same fence");
    assert_eq!(database.change(sql, write(1, FIRST)), 0, "a stale fence");
    assert_eq!(database.change(statement("sql-touch"), write(0, FIRST)), 0, "a stale fence");
    assert_eq!(database.change(sql, write(7, NEXT)), 1);
}

pub(crate) fn inserts_a_missing_row_and_refuses_a_stale_insert(database: &mut impl Database) {
    with_fences(database);
    let sql = statement("sql-upsert");
    let row = |pieces, fence| Values { id: "sku:43", ..write(pieces, fence) };
    assert_eq!(database.change(sql, row(9, FIRST)), 1);
    assert_eq!(database.change(sql, row(8, FIRST)), 1, "the same fence");
    assert_eq!(database.change(sql, row(7, NEXT)), 1, "a higher fence");
    assert_eq!(database.change(sql, row(1, FIRST)), 0, "a stale fence");
    assert_eq!(pieces(database, "sku:43"), [7]);
}

/// Two rows change under one lock, or neither changes.
pub(crate) fn a_row_for_the_lock_guards_many_rows(database: &mut impl Database) {
    with_fences(database);
    let row = "INSERT INTO stock (id, pieces) VALUES (:id, :pieces)";
    database.change(row, Values { id: "sku:43", ..write(10, 0) });
    assert!(sell_both(database, FIRST));
    assert!(sell_both(database, FIRST), "the same fence");
    assert!(sell_both(database, NEXT), "a higher fence");
    assert!(!sell_both(database, FIRST), "a stale fence");
    assert_eq!(pieces(database, "sku:42"), [7]);
    assert_eq!(pieces(database, "sku:43"), [7]);
}

/// The guide's transaction: claim, then write without mentioning fences.
fn sell_both(database: &mut impl Database, fence: i64) -> bool {
    let values = write(0, fence);
    database.change("BEGIN", values);
    let is_accepted = database.change(statement("sql-claim"), values) == 1;
    if is_accepted {
        database.change("UPDATE stock SET pieces = pieces - 1", values);
    }
    database.change(if is_accepted { "COMMIT" } else { "ROLLBACK" }, values);
    is_accepted
}
