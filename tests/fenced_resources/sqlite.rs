//! The guide's statements on SQLite.

use rusqlite::{Connection, ToSql};

use super::sql::{self, Database, ROW, TABLE, Values};

impl Database for Connection {
    fn change(&mut self, sql: &str, values: Values) -> usize {
        self.execute(sql, &bound(sql, &values)[..]).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn numbers(&mut self, sql: &str, values: Values) -> Vec<i64> {
        let mut query = self.prepare(sql).expect("a query");
        let rows = query.query_map(&bound(sql, &values)[..], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("numbers")
    }
}

/// The values that the statement names; SQLite refuses others.
fn bound<'a>(sql: &str, values: &'a Values) -> Vec<(&'static str, &'a dyn ToSql)> {
    let all: [(&str, &dyn ToSql); 4] = [
        (":id", &values.id),
        (":key", &values.id),
        (":pieces", &values.pieces),
        (":fence", &values.fence),
    ];
    all.into_iter().filter(|(name, _)| sql.contains(name)).collect()
}

fn database() -> Connection {
    let connection = Connection::open_in_memory().expect("a database in memory");
    connection.execute_batch(&format!("{TABLE}; {ROW}")).expect("a table");
    connection
}

#[test]
fn sqlite_refuses_a_stale_write() {
    sql::refuses_a_stale_write(&mut database());
}

#[test]
fn sqlite_tells_a_refused_write_from_a_missing_row() {
    sql::tells_a_refused_write_from_a_missing_row(&mut database());
}

#[test]
fn sqlite_keeps_out_behind_a_touch_what_it_would_accept_without() {
    sql::a_touch_keeps_out_what_would_be_accepted_without(&mut database());
}

#[test]
fn sqlite_inserts_a_missing_row_and_refuses_a_stale_insert() {
    sql::inserts_a_missing_row_and_refuses_a_stale_insert(&mut database());
}

#[test]
fn sqlite_guards_many_rows_by_a_row_for_the_lock() {
    sql::a_row_for_the_lock_guards_many_rows(&mut database());
}
