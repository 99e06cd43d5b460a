//! A node that joins the client's lists, or has left them.

use super::core::Node;
use super::pending::Request;
use super::state::State;
use crate::resp::encode::append_command;
use crate::slab::SlotIndex;
use crate::time::Instant;

impl Node {
    /// From now on the client has this name, on the open connection too.
    pub(crate) fn rename(&mut self, name: &str, attended: Instant) {
        self.login.client_name = Some(name.to_owned());
        if self.is_connected() {
            append_command(&mut self.output, &[b"CLIENT", b"SETNAME", name.as_bytes()]);
            self.append(Request::Tell, &[], attended);
        }
    }

    /// The client connects to the node no more. The connection has ended. Returns the slots of the
    /// releases that the client owes the node.
    pub(crate) fn give_up(&mut self) -> Vec<SlotIndex> {
        self.enter(State::Disconnected { retry_at: Instant::MAX });
        self.is_settled = true;
        std::iter::from_fn(|| self.debts.pop_any()).map(|debt| debt.slot).collect()
    }

    /// Whether the client connects to the node no more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.state == (State::Disconnected { retry_at: Instant::MAX })
    }

    /// The client needs the node again.
    pub(crate) fn take_back(&mut self, now: Instant) {
        if self.is_given_up() {
            self.is_settled = false;
            self.enter(State::Disconnected { retry_at: now });
        }
    }
}
