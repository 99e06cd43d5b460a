//! The running program of one client, behind the line protocol.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::Anything;

pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Program {
    /// Starts a program; its first [`answer`](Self::answer) describes it.
    pub(crate) fn start(bin: &Path, nodes: &str, setting: &str, log: &Path) -> Anything<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut child = Command::new(bin)
            .args([nodes, setting])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a program without its pipes".into());
        };
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, answers })
    }

    pub(crate) fn say(&mut self, line: &str) -> Anything {
        writeln!(self.input, "{line}")?;
        Ok(self.input.flush()?)
    }

    /// The next answer; `None` if it does not come in time.
    pub(crate) fn answer(&mut self, limit: Duration) -> Anything<Option<Value>> {
        match self.answers.recv_timeout(limit) {
            Ok(line) => {
                let answer: Value = serde_json::from_str(&line)?;
                answer
                    .get("error")
                    .map_or(Ok(Some(answer.clone())), |error| Err(error.to_string().into()))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("it has ended".into()),
        }
    }

    /// Sends one line, and returns its answer.
    pub(crate) fn ask(&mut self, line: &str, limit: Duration) -> Anything<Value> {
        self.say(line)?;
        self.answer(limit)?.ok_or_else(|| format!("no answer to `{line}` in {limit:?}").into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
