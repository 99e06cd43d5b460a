//! The choices that only a fuzzer makes: nodes that do not say what a server would, and clients
//! that call out of turn.
//!
//! A lie excuses the violations that rest on the word of nodes ([`BELIEVED`]). All other rules
//! still hold: each call ends once and in time, no deadline moves by itself, and all is well again
//! after the lies.

use super::clock::Global;
use super::plan::Plan;
use super::random::Random;
use super::task::TaskState;
use super::world::{Offer, Phase, World};
use crate::engine::Event;
use crate::rules::Kind;
use crate::time::Instant;

use std::time::Duration;

/// Of a thousand times, how often each kind of stray happens.
#[derive(Debug)]
pub(super) struct Strays {
    /// An answer is not what the server said.
    lies: u64,
    /// A task's client calls out of turn before the task goes on.
    calls: u64,
    /// Another part of a client's loop comes next.
    jumps: u64,
}

/// The violations for which nodes that lie are excused.
const BELIEVED: &[Kind] = &[
    Kind::TwoHolders,
    Kind::NoGround,
    Kind::Amnesia,
    Kind::Misattributed,
    Kind::Orphan,
    Kind::FalseClaim,
    Kind::FenceOrder,
];

impl Plan {
    /// Nothing strays in a run by a seed.
    pub(super) fn stray(&mut self, random: &mut Random) {
        if !random.is_given() {
            return;
        }
        // A fuzzer gives few bytes.
        self.fault_every /= 4;
        // Turns and aliases are judged by what nodes say.
        let is_trusting = self.hand_over || self.rare.aliases > 0;
        let lies = if is_trusting { 0 } else { random.pick(&[0, 0, 50, 300]) };
        if lies > 0 {
            // The run waits for keys that lies left behind, and works all the while.
            self.max_ttl_ms = self.max_ttl_ms.min(2000);
        }
        let (calls, jumps) = match self.hand_over {
            true => (0, 0),
            false => (random.pick(&[0, 50, 300]), random.pick(&[0, 20, 200])),
        };
        self.strays = Some(Strays { lies, calls, jumps });
    }
}

impl World {
    /// Whether such a stray happens now.
    fn strays(&mut self, of: impl Fn(&Strays) -> u64) -> bool {
        let permille = self.plan.strays.as_ref().map_or(0, of);
        self.phase == Phase::Safety && self.random.is_given() && self.random.chance(permille)
    }

    /// Whether another part of a client's loop comes next.
    pub(super) fn jumps(&mut self) -> bool {
        self.strays(|strays| strays.jumps)
    }

    /// A node adds something to what it says, or says something else.
    pub(super) fn lie(&mut self, conn: usize, out: &mut Vec<u8>) {
        if !self.strays(|strays| strays.lies) {
            return;
        }
        let lie: Vec<u8> = match self.random.below(4) {
            0 => (0..self.random.below(32)).map(|_| self.random.below(256) as u8).collect(),
            _ => self.random.pick(&ANSWERS).to_vec(),
        };
        self.log(|_| format!("connection {conn} lies: {}", lie.escape_ascii()));
        let place = match self.random.below(4) {
            0 => 0..0,
            1 => out.len()..out.len(),
            2 => 0..out.len(),
            _ => 0..self.random.index(out.len() + 1),
        };
        out.splice(place, lie);
        self.conns[conn].has_lied = true;
        self.oracle.excused = BELIEVED;
    }

    /// Ends the connections on which answers and requests may be out of step.
    pub(super) fn leave_liars(&mut self) {
        for client in 0..self.clients.len() {
            for node in 0..self.plan.nodes {
                let link = self.clients[client].links[node];
                if link.is_some_and(|id| self.conns[id].has_lied) {
                    self.reset(client, node);
                }
            }
        }
    }

    /// The client of a task that is to go on makes another call. Returns whether that call began an
    /// operation of the task.
    pub(super) fn calls_out_of_turn(&mut self, client: usize, task: usize, now: Instant) -> bool {
        if !self.strays(|strays| strays.calls) {
            return false;
        }
        let other = self.random.index(self.plan.tasks);
        let this = &mut self.clients[client];
        let (op, lease) = (this.tasks[other].op, this.tasks[other].lease);
        match self.random.below(3) {
            0 => op.into_iter().for_each(|op| this.engine.cancel(op, now)),
            1 if lease.is_some() => {
                let is_shared = this.tasks[other].held.is_some();
                self.release(client, other, now);
                self.clients[client].given_up.extend(lease.filter(|_| !is_shared));
            }
            2 if this.tasks[task].state == TaskState::Idle => {
                let (key, holder) = (self.some_key(client), self.holder());
                let offer = Offer { from: client, key, token: b"nobody's".to_vec(), holder };
                self.clients[client].tasks[task].next_at = Global::MAX;
                self.take_over(client, task, &offer, now);
                return true;
            }
            _ => {}
        }
        self.call_for_given_up(client, now);
        false
    }

    /// Every text for a caller is one line, whatever nodes have said.
    pub(super) fn check_words(&mut self, client: usize, event: &Event, now: Instant) {
        if self.plan.strays.is_none() {
            return;
        }
        let engine = &mut self.clients[client].engine;
        let connecting = engine.connect_error(now);
        self.oracle.check(Kind::OddError, connecting.is_none() == engine.is_ready(), || {
            format!("client {client}: {connecting:?} is not how its nodes are")
        });
        let error = match event {
            Event::Lock { result: Err(error), .. } => Some(error.to_string()),
            Event::Adopt { result: Err(error), .. } => Some(error.to_string()),
            Event::Extend { result: Err(error), .. } => Some(error.to_string()),
            Event::Unlock { result: Err(error), .. } => Some(error.to_string()),
            _ => None,
        };
        let notices = std::iter::from_fn(|| engine.poll_notice()).map(|notice| notice.to_string());
        let connecting = connecting.map(|error| error.to_string());
        let odd = notices
            .chain(connecting)
            .chain(error)
            .find(|text| text.is_empty() || text.contains('\n'));
        self.oracle
            .check(Kind::OddError, odd.is_none(), || format!("client {client} is told {odd:?}"));
    }

    /// No call works on a lease that was given up.
    fn call_for_given_up(&mut self, client: usize, now: Instant) {
        let ttl = Duration::from_millis(self.plan.max_ttl_ms);
        let this = &mut self.clients[client];
        for &lease in &this.given_up {
            let is_refused = this.engine.unlock(lease, now).is_err()
                && this.engine.extend(lease, ttl, now).is_err()
                && this.engine.detach(lease).is_err()
                && this.engine.deadline(lease).is_none();
            this.engine.release(lease, now);
            self.oracle.check(Kind::LimitIgnored, is_refused, || {
                format!("client {client} can still use {lease:?}")
            });
        }
    }
}

/// Answers that a server might give, if not to this question.
const ANSWERS: [&[u8]; 30] = [
    b"+OK\r\n",
    b"_\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b":0\r\n",
    b":1\r\n",
    b":2\r\n",
    b"+QUEUED\r\n",
    b"-NOSCRIPT No matching script.\r\n",
    b"-NOPERM this user has no permissions to run the 'eval' command\r\n",
    b"-ERR unknown command 'DELIFEQ'\r\n",
    b"-ERR syntax error\r\n",
    b"-ERR something else\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-MASTERDOWN Link with MASTER is down\r\n",
    b"-LOADING loading the dataset in memory\r\n",
    b"-MISCONF Errors writing to the AOF file\r\n",
    b"-NOAUTH Authentication required.\r\n",
    b"-NOPROTO unsupported protocol version\r\n",
    b"-EXECABORT Transaction discarded because of previous errors.\r\n",
    b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    b"-MOVED 1 10.0.0.1:7000\r\n",
    b"*1\r\n+OK\r\n",
    b"*1\r\n:1\r\n",
    b"*0\r\n",
    b"%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n",
    b"$36\r\nrun_id:lied\r\nuptime_in_seconds:99999\r\n\r\n",
    b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n",
    b"$40\r\n0123456789abcdef0123456789abcdef01234567\r\n",
];
