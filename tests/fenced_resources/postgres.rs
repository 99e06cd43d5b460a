//! The guide's statements on PostgreSQL, alone and while other sessions hold the row.

use redbolt_rig::{PATIENCE, eventually};

use super::guide::statement;
use super::postgres_server::PostgresServer;
use super::psql::Session;
use super::sql::{self, Database, ROW, TABLE, Values};

const DONE: &str = "00000";
const SERIALIZATION_FAILURE: &str = "40001";

const fn write(pieces: i64, fence: i64) -> Values {
    Values { id: "sku:42", pieces, fence }
}

impl Database for Session {
    fn change(&mut self, sql: &str, values: Values) -> usize {
        let answer = self.ask(sql, values);
        assert_eq!(answer.sqlstate, DONE, "{sql}");
        answer.count
    }

    fn numbers(&mut self, sql: &str, values: Values) -> Vec<i64> {
        let answer = self.ask(sql, values);
        assert_eq!(answer.sqlstate, DONE, "{sql}");
        answer.rows.iter().map(|row| row.parse().expect("a number")).collect()
    }
}

/// A session on tables in their first state.
fn afresh(server: &PostgresServer) -> Session {
    let mut session = Session::connect(server);
    for sql in ["DROP TABLE IF EXISTS stock, fences", TABLE, ROW] {
        session.change(sql, write(0, 0));
    }
    session
}

#[test]
fn postgres_refuses_stale_writers_by_each_statement() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    sql::refuses_a_stale_write(&mut afresh(&server));
    sql::tells_a_refused_write_from_a_missing_row(&mut afresh(&server));
    sql::a_touch_keeps_out_what_would_be_accepted_without(&mut afresh(&server));
    sql::inserts_a_missing_row_and_refuses_a_stale_insert(&mut afresh(&server));
    sql::a_row_for_the_lock_guards_many_rows(&mut afresh(&server));
}

#[test]
fn postgres_refuses_a_stale_write_with_numbered_parameters() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    let mut session = afresh(&server);
    session.change(statement("sql-column"), write(0, 0));
    session.change(&format!("PREPARE write AS {}", statement("postgres-write")), write(0, 0));
    let sql = "EXECUTE write(:id, :pieces, :fence)";
    assert_eq!(session.change(sql, write(9, 7)), 1);
    assert_eq!(session.change(sql, write(8, 7)), 1, "the same fence");
    assert_eq!(session.change(sql, write(7, 8)), 1, "a higher fence");
    assert_eq!(session.change(sql, write(1, 7)), 0, "a stale fence");
    assert_eq!(session.numbers("SELECT pieces FROM stock", write(0, 0)), [7]);
}

/// The stale write begins before the next holder's write is committed, and waits for it.
#[test]
fn postgres_refuses_a_stale_write_that_waited_for_the_next_holders() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    let mut next = afresh(&server);
    next.change(statement("sql-column"), write(0, 0));
    let sql = statement("sql-write");

    let mut stale = Session::connect(&server);
    stale_write_waits(&mut next, &mut stale, "READ COMMITTED", 7, &server);
    let answer = stale.answer();
    assert_eq!((answer.sqlstate.as_str(), answer.count), (DONE, 0));
    stale.change("COMMIT", write(0, 0));

    for (isolation, fence) in [("REPEATABLE READ", 9), ("SERIALIZABLE", 11)] {
        stale_write_waits(&mut next, &mut stale, isolation, fence, &server);
        assert_eq!(stale.answer().sqlstate, SERIALIZATION_FAILURE, "{isolation}");
        stale.change("ROLLBACK", write(0, 0));
        assert_eq!(stale.change(sql, write(1, fence)), 0, "again, behind {isolation}");
    }
    assert_eq!(next.numbers("SELECT pieces FROM stock", write(0, 0)), [6]);
}

/// Lets a write with `fence` wait for the row, and then commits the next holder's write.
fn stale_write_waits(
    next: &mut Session,
    stale: &mut Session,
    isolation: &str,
    fence: i64,
    server: &PostgresServer,
) {
    let sql = statement("sql-write");
    next.change("BEGIN", write(0, 0));
    assert_eq!(next.change(sql, write(6, fence + 1)), 1);
    stale.change(&format!("BEGIN ISOLATION LEVEL {isolation}"), write(0, 0));
    stale.send(sql, write(1, fence));
    let mut observer = Session::connect(server);
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let waits = eventually(PATIENCE, || observer.numbers(waiting, write(0, 0)) == [1]);
    assert!(waits, "the stale write does not wait");
    next.change("COMMIT", write(0, 0));
}
