//! The cost of waiting: while nothing changes, a client whose calls only wait sends each node a
//! bounded number of commands.

use super::clock::{Global, MS, SECOND};
use super::counts::Path;
use super::task::TaskState;
use super::world::World;
use crate::resp::{Decoder, Limits};
use crate::rules::Kind;

/// Per second, a waiting call asks one node ten times for the holder, and tells the holder four
/// times that it still waits.
const COMMANDS_MAX: usize = 24;

/// The commands that one look at a key takes.
const LOOK_COMMANDS: u64 = 3;

/// The commands that a client has sent since the last change.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    since: Global,
    commands: Vec<usize>,
}

impl World {
    /// A lock changed hands, a call began or ended, or something broke or healed.
    pub(super) const fn changed(&mut self) {
        self.changed_at = self.now;
    }

    /// A client writes these bytes to a node.
    pub(super) fn count_commands(&mut self, client: usize, node: usize, mut bytes: &[u8]) {
        // The commands that follow a change take some time.
        let since = self.changed_at + SECOND;
        let quiet = &mut self.quiet[client];
        if quiet.since < since {
            *quiet = Quiet { since, commands: vec![0; self.plan.nodes] };
        }
        let waits = |state: TaskState| matches!(state, TaskState::Idle | TaskState::Acquiring);
        let tasks = &self.clients[client].tasks;
        let calls = tasks.iter().filter(|task| task.state == TaskState::Acquiring).count();
        // A forged list may name hundreds of calls, and each is woken in vain.
        // A call for several keys extends those that it keeps.
        let is_judged = self.plan.forged == 0 && self.plan.sets == 0 && self.now >= since;
        if !is_judged || calls == 0 || !tasks.iter().all(|task| waits(task.state)) {
            return;
        }
        let mut decoder = Decoder::new(Limits::default());
        while let Ok(Some(frame)) = decoder.frame(bytes) {
            quiet.commands[node] += 1;
            bytes = &bytes[frame.len()..];
        }
        let most = quiet.commands.iter().copied().max().unwrap_or(0);
        // A call that has come upon leftovers of other locks makes some attempts at once.
        let seconds = (self.now - quiet.since) / SECOND + 4;
        self.counts.path(Path::WaitedStill);
        // A call that has no holder to tell polls at its own pace.
        let looks = LOOK_COMMANDS * SECOND / (self.plan.gap / 10).max(5 * MS);
        let bound = calls * (COMMANDS_MAX + looks as usize) * seconds as usize;
        self.oracle.check(Kind::Storm, most <= bound, || {
            format!("client {client}: {most} commands to a node in {seconds} s, by {calls} calls")
        });
    }
}
