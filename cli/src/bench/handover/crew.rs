//! The clients of the bench, seen from their starter: it starts them, hears what they say, and ends
//! them.
//!
//! # Invariants
//!
//! - No client outlives the crew. One that is told to end releases its lock first, and is killed if
//!   that takes longer than its lock would last.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;

use redbolt::now;
use serde_json::Value;

use super::client::{FIRST, Go, HIDDEN};
use super::said::Said;
use crate::bench::keys::{Keys, TTL};
use crate::exit::{Failure, SYSTEM};
use crate::output::{note, say, shown};
use crate::signals::{Signals, number};
use crate::{own_binary, settings};

/// What the starter hears.
pub(super) enum Event {
    Said(usize, Said),
    /// The client has said its last word.
    Ended(usize),
    Signal,
}

pub(super) struct Crew {
    members: Vec<Member>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    signals: Signals,
    key: String,
    /// The addresses of the embedded nodes.
    urls: Option<String>,
    is_json: bool,
}

struct Member {
    child: Child,
    /// Its end ends the client.
    orders: Option<ChildStdin>,
    is_done: bool,
    has_ended: bool,
}

impl Crew {
    pub(super) fn new(
        (sender, events): (Sender<Event>, Receiver<Event>),
        signals: Signals,
        urls: Option<String>,
        is_json: bool,
    ) -> Self {
        let key = shown(Keys::new().next());
        Self { members: Vec::new(), events, sender, signals, key, urls, is_json }
    }

    /// Starts one more client; embedded nodes go to it in its environment.
    pub(super) fn hire(&mut self) -> Result<(), Failure> {
        let index = self.members.len();
        let mut command = own_binary::command(HIDDEN)?;
        command.args([self.key.as_str(), if index == 0 { FIRST } else { "next" }]);
        // The options of this process: they say how to reach the nodes, and what to do.
        command.args(std::env::args_os().skip(1));
        if let Some(urls) = &self.urls {
            command.env(settings::NODES_VARIABLE, urls);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, out) = (child.stdin.take(), child.stdout.take());
        self.members.push(Member { child, orders, is_done: false, has_ended: false });
        let sender = self.sender.clone();
        thread::Builder::new().name(format!("client-{index}")).spawn(move || {
            let lines = out.map(BufReader::new).into_iter().flat_map(BufReader::lines);
            let said = lines.map_while(Result::ok).map_while(|line| Said::parse(&line));
            for event in said.map(|said| Event::Said(index, said)).chain([Event::Ended(index)]) {
                // The starter has gone.
                let _ = sender.send(event);
            }
        })?;
        Ok(())
    }

    /// What a client says within `limit`, and which.
    pub(super) fn listen(&mut self, limit: Duration) -> Result<Option<(usize, Said)>, Failure> {
        let Ok(event) = self.events.recv_timeout(limit) else { return Ok(None) };
        match event {
            Event::Signal => match self.signals.next() {
                Some(signal) => Err(Failure::signal(number(signal))),
                None => Ok(None),
            },
            Event::Said(index, Said::Error(error)) => Err(self.why(index, &error)),
            Event::Said(index, said) => {
                if let (Said::Done, Some(member)) = (&said, self.members.get_mut(index)) {
                    member.is_done = true;
                }
                Ok(Some((index, said)))
            }
            Event::Ended(index) => {
                let Some(member) = self.members.get_mut(index) else { return Ok(None) };
                member.has_ended = true;
                if member.is_done {
                    return Ok(None);
                }
                let message = "a client of the bench has ended before its time";
                Err(Failure::new(SYSTEM, "system", message))
            }
        }
    }

    /// Waits until a client is ready; the first one knows the round trip.
    pub(super) fn ready(&mut self) -> Result<Option<Duration>, Failure> {
        loop {
            if let Some((_, Said::Ready(round_trip))) = self.listen(Duration::MAX)? {
                return Ok(round_trip);
            }
        }
    }

    /// Lets all begin.
    pub(super) fn go(&mut self, go: &Go) -> io::Result<()> {
        let mut orders = self.members.iter_mut().filter_map(|member| member.orders.as_mut());
        orders.try_for_each(|orders| orders.write_all(go.line().as_bytes()))
    }

    /// Tells all to end: each releases its lock first.
    pub(super) fn close(&mut self) {
        self.members.iter_mut().for_each(|member| member.orders = None);
    }

    pub(super) fn are_done(&self) -> bool {
        self.members.iter().all(|member| member.is_done)
    }

    /// Passes on why a client could not begin, as every command says it.
    fn why(&mut self, index: usize, error: &Value) -> Failure {
        if self.is_json {
            // Nobody is left to hear that stdout is gone.
            let _ = say(error);
        } else if let Some(message) = error.get("message").and_then(Value::as_str) {
            note(message);
        }
        let status = self.members.get_mut(index).map(|member| member.child.wait());
        let code = status.and_then(Result::ok).and_then(|status| status.code());
        Failure::code(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(SYSTEM))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.close();
        let deadline = now() + TTL;
        while self.members.iter().any(|member| !member.has_ended) {
            match self.events.recv_timeout(now().until(deadline)) {
                Ok(Event::Ended(index)) => {
                    if let Some(member) = self.members.get_mut(index) {
                        member.has_ended = true;
                    }
                }
                Ok(Event::Said(..) | Event::Signal) => {}
                Err(_) => break,
            }
        }
        for Member { child, has_ended, .. } in &mut self.members {
            if !*has_ended {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}
