//! Tests of locks that linger, and of queues, on the table alone: the test sets the time and the
//! nodes' answers.

use std::time::Duration;

use super::calls::{CallIndex, CallResult, QueueIndex};
use super::policy::Policy;
use super::span::CallSpan;
use super::table::{Command, Table, Task};
use crate::config::Config;
use crate::driver::{Lease, LeasePool};
use crate::engine::{Engine, LeaseId};
use crate::key::{self, Key};
use crate::options::LockOptions;
use crate::quorum::NodeMask;
use crate::retry::Retry;
use crate::time::Instant;
use crate::token::TokenBytes;

const TTL: Duration = Duration::from_secs(10);
/// The TTL less the drift.
const VALIDITY: Duration = Duration::from_millis(9_898);
const LINGER: Duration = Duration::from_secs(2);

struct Desk {
    table: Table,
    pool: LeasePool,
    engine: Engine,
    now: Instant,
    leases: usize,
}

type Held = (QueueIndex, Lease);

impl Desk {
    fn new() -> Self {
        let (config, now) = (Config::new(["h:1"]).unwrap(), Instant::from_nanos(1));
        Self {
            table: Table::new(Policy::new(&config).unwrap(), 8, false),
            pool: LeasePool::new(),
            engine: Engine::new(&config, [0; 32], now).unwrap(),
            now,
            leases: 0,
        }
    }

    fn asks(&mut self, options: &LockOptions) -> CallIndex {
        self.asks_for(b"k", options)
    }

    fn asks_for(&mut self, key: &[u8], options: &LockOptions) -> CallIndex {
        let patience = options.patience(self.now);
        self.table.begin_lock(key, options, patience, &mut CallSpan::none(), self.now).unwrap()
    }

    /// The commands for the driving thread.
    fn commands(&mut self) -> Vec<&'static str> {
        let commands = std::mem::take(&mut self.table.commands);
        let name = |command| match command {
            Command::Call(_, Task::Acquire { .. }, _) => "acquire",
            Command::Release(_) => "release",
            other @ (Command::Call(..) | Command::Shutdown { .. } | Command::Close) => {
                panic!("{other:?}")
            }
        };
        commands.into_iter().map(name).collect()
    }

    /// A lock that the nodes grant.
    fn wins(&mut self, options: &LockOptions) -> Held {
        let call = self.asks(options);
        assert_eq!(self.commands(), ["acquire"]);
        self.leases += 1;
        let (id, token) = (LeaseId::nth(self.leases), TokenBytes::Drawn([0; 20]));
        let ends = self.now + VALIDITY;
        let (lease, _) =
            self.pool.make(id, (b"k", &token, None), Box::default(), ends, NodeMask::first(1));
        let mut replies = vec![(call, CallResult::Lock(Ok(lease)))];
        self.table.hand_out(&self.engine, false, self.now, &mut replies, &mut Vec::new());
        self.taken(call)
    }

    fn taken(&mut self, call: CallIndex) -> Held {
        let ((reply, queue), _) = self.table.calls.take(call);
        let CallResult::Lock(Ok(lease)) = reply else { panic!("{reply:?}") };
        (queue.unwrap(), lease)
    }

    /// A lock of a call that asks no node.
    fn again(&mut self, options: &LockOptions) -> Held {
        let call = self.asks(options);
        assert!(self.commands().is_empty());
        self.taken(call)
    }

    fn drops(&mut self, (queue, lease): Held) {
        let now = self.now;
        drop(self.table.give_back(queue, lease, true, || now));
    }

    fn waits(&mut self, time: Duration) {
        self.now = self.now + time;
        self.table.hand_out(&self.engine, false, self.now, &mut Vec::new(), &mut Vec::new());
    }
}

fn options() -> LockOptions {
    LockOptions::new(TTL).linger(LINGER)
}

/// The table's atomics belong to the schedule checker.
fn once(scenario: fn()) {
    shuttle::check_random(scenario, 1);
}

#[test]
fn a_lock_that_lingers_is_taken_again_without_a_command() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        let id = held.1.id();
        desk.drops(held);
        for _ in 0..3 {
            let held = desk.again(&options());
            assert_eq!(held.1.id(), id);
            desk.drops(held);
        }
        desk.waits(LINGER);
        assert_eq!(desk.commands(), ["release"]);
    });
}

/// The driving thread has not looked at the time yet.
#[test]
pub(super) fn a_lock_whose_time_to_linger_is_over_is_not_taken_again() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        desk.drops(held);
        desk.now = desk.now + LINGER;
        desk.asks(&options());
        assert_eq!(desk.commands(), ["release", "acquire"]);
    });
}

#[test]
pub(super) fn a_call_that_wants_more_than_is_left_goes_behind_the_release() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        desk.drops(held);
        desk.waits(LINGER / 2);
        desk.asks(&options().min_validity(VALIDITY));
        assert_eq!(desk.commands(), ["release", "acquire"]);
    });
}

#[test]
fn each_caller_says_for_itself_how_long_its_lock_lingers() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        desk.drops(held);
        let held = desk.again(&options().linger(LINGER / 4));
        desk.drops(held);
        desk.waits(LINGER / 4);
        assert_eq!(desk.commands(), ["release"]);
        let held = desk.wins(&options());
        desk.drops(held);
        let held = desk.again(&LockOptions::new(TTL));
        desk.drops(held);
        assert_eq!(desk.commands(), ["release"]);
    });
}

#[test]
fn a_lock_lingers_for_half_of_its_ttl_at_most() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options().linger(TTL));
        desk.drops(held);
        desk.waits(VALIDITY / 2 - Duration::from_millis(1));
        assert!(desk.commands().is_empty());
        desk.waits(Duration::from_millis(1));
        assert_eq!(desk.commands(), ["release"]);
    });
}

/// The deadline does not tell how long ago the SET of this lease was.
#[test]
pub(super) fn a_lock_that_was_extended_by_another_ttl_does_not_linger() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        desk.table.note_extension(held.0, held.1.id(), TTL / 2);
        desk.drops(held);
        assert_eq!(desk.commands(), ["release"]);
        // Nor does it linger for the caller that it is handed on to.
        let held = desk.wins(&options());
        desk.table.note_extension(held.0, held.1.id(), TTL / 2);
        let call = desk.asks(&options().retry(Retry::default()));
        desk.drops(held);
        let held = desk.taken(call);
        desk.drops(held);
        assert_eq!(desk.commands(), ["release"]);
        // The extension of a former lease changes nothing.
        let (former, held) = (LeaseId::nth(9), desk.wins(&options()));
        desk.table.note_extension(held.0, former, TTL / 2);
        desk.drops(held);
        assert!(desk.commands().is_empty());
    });
}

#[test]
fn a_lease_that_is_handed_on_lingers_as_its_new_caller_wants() {
    once(|| {
        let plain = LockOptions::new(TTL);
        for (first, second, after) in
            [(options(), &plain, vec!["release"]), (plain.clone(), &options(), vec![])]
        {
            let mut desk = Desk::new();
            let held = desk.wins(&first);
            let call = desk.asks(&second.clone().retry(Retry::default()));
            desk.drops(held);
            let held = desk.taken(call);
            desk.drops(held);
            assert_eq!(desk.commands(), after);
        }
    });
}

#[test]
fn a_call_for_several_keys_ends_the_lingering_of_each() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        desk.drops(held);
        let keys = [b"a", b"k"].map(|key| Key::from_slice(&key[..]));
        desk.asks_for(&key::join(&keys), &LockOptions::new(TTL));
        assert_eq!(desk.commands(), ["release", "acquire"]);
    });
}

#[test]
pub(super) fn a_lock_that_is_lost_while_it_lingers_is_not_taken_again() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        let id = held.1.id();
        desk.drops(held);
        desk.pool.set_lost(0, id);
        desk.asks(&options());
        assert_eq!(desk.commands(), ["release", "acquire"]);
    });
}

#[test]
pub(super) fn a_lock_that_another_client_wants_does_not_begin_to_linger() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        assert!(desk.table.queues.note_wanted_elsewhere(held.1.id(), b"k").is_none());
        desk.drops(held);
        assert_eq!(desk.commands(), ["release"]);
    });
}

/// No other client has announced that it waits, but a client of another library may wait in
/// silence.
#[test]
pub(super) fn a_lock_is_taken_again_as_often_as_the_configuration_allows() {
    once(|| {
        let mut desk = Desk::new();
        let mut held = desk.wins(&options());
        for _ in 0..64 {
            desk.drops(held);
            held = desk.again(&options());
        }
        desk.drops(held);
        assert_eq!(desk.commands(), ["release"]);
    });
}

#[test]
pub(super) fn a_lock_that_lingers_is_released_at_the_end_of_its_client() {
    once(|| {
        let mut desk = Desk::new();
        let held = desk.wins(&options());
        desk.drops(held);
        desk.table.close(&mut Vec::new());
        assert_eq!(desk.commands(), ["release"]);
    });
}

/// The client may have extended the first lease, and the driving thread has not looked yet.
#[test]
fn a_call_waits_behind_no_slot_whose_time_seems_to_be_over_while_another_is_free() {
    once(|| {
        let mut desk = Desk::new();
        let options = LockOptions::new(TTL).slots(2).retry(Retry::default());
        let _held = desk.wins(&options);
        desk.now = desk.now + VALIDITY;
        desk.asks(&options);
        assert_eq!(desk.commands(), ["acquire"]);
    });
}
