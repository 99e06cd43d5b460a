//! [`Session`]: one session of PostgreSQL's own client, which takes parameters by name as the
//! guide writes them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::postgres_server::PostgresServer;
use super::sql::Values;

/// The line behind the rows of an answer.
const END: &str = "end of answer";

#[derive(Debug)]
pub(crate) struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// How a statement ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `00000` if there was no error.
    pub(crate) sqlstate: String,
    /// How many rows the statement changed or returned.
    pub(crate) count: usize,
    pub(crate) rows: Vec<String>,
}

impl Session {
    pub(crate) fn connect(server: &PostgresServer) -> Self {
        let mut command = server.psql();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("psql runs");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout }
    }

    /// Sends a statement and does not wait for its answer.
    pub(crate) fn send(&mut self, sql: &str, values: Values) {
        let Values { id, pieces, fence } = values;
        let text = format!(
            "\\set id '\\'{id}\\''\n\\set key '\\'{id}\\''\n\\set pieces {pieces}\n\\set fence {fence}\n\
             {sql};\n\\echo {END} :SQLSTATE :ROW_COUNT\n"
        );
        self.stdin.write_all(text.as_bytes()).expect("psql reads");
    }

    /// The answer to the oldest statement whose answer was not read; the server's
    /// `statement_timeout` is its limit.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut rows = Vec::new();
        loop {
            let mut line = String::new();
            let len = self.stdout.read_line(&mut line).expect("psql writes text");
            assert!(len > 0, "psql ended behind {rows:?}");
            let line = line.trim_end();
            let Some(end) = line.strip_prefix(END) else {
                rows.push(line.to_owned());
                continue;
            };
            let (sqlstate, count) = end.trim().split_once(' ').expect("two words");
            let count = count.parse().expect("a count");
            return Answer { sqlstate: sqlstate.to_owned(), count, rows };
        }
    }

    pub(crate) fn ask(&mut self, sql: &str, values: Values) -> Answer {
        self.send(sql, values);
        self.answer()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // An error means that the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
