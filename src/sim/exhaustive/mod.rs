//! Every order of delivery and loss for two clients and two or three nodes. Each client makes one
//! attempt at one key, or one client hands its lock to the other, or both want two keys.
//!
//! # Method
//!
//! A schedule is a sequence of steps. A server runs the next message of a connection, or a client
//! reads the next one. A connection is lost: messages on their way to the server are lost with it,
//! or run later. A client reconnects, or its next timer is due. Or a TTL passes, and all present
//! locks end everywhere. Schedules that show every client and every server the same sequence of
//! events lead to the same state. So the search builds each such state once, and counts the
//! schedules that lead through it.
//!
//! A server that stands still needs no step of its own: any message may run last, even after the
//! end of its connection.
//!
//! After a transfer one order stands for many: a client that has released reads at once. After the
//! end of a schedule nothing is lost, and time goes on in one order. The waiter must get the lock
//! well before the TTL ends, and release it so that no key is left. Calls for two keys end in the
//! same way.

mod sets;
mod transfer;
mod world;

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::rules::{self, Mutant};
use world::World;

/// Two clients are enough for what any two clients may do to each other.
pub const CLIENTS: usize = 2;
const NODES_MAX: usize = 3;

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a test fills it in")]
pub struct Limits {
    /// The number of nodes, three at most. Two nodes need both votes. With three nodes, two kinds
    /// of trouble together have too many orders.
    pub nodes: usize,
    /// The first client holds the key and the second waits for it. The search begins with the
    /// release. Otherwise it begins with an attempt of both.
    pub transfer: bool,
    /// Each client calls for the same two keys, and waits until it has both.
    pub sets: bool,
    /// The connections, each of a client to a node, of which one may be lost at any time.
    pub lost: &'static [(usize, usize)],
    /// The clients whose next timer may be due before they read their answers. The timer ends a
    /// round, or makes the client look at the key.
    pub timers: &'static [usize],
    /// Whether a client that won releases at once, rather than holding on.
    pub releases: bool,
    /// How often a TTL passes, for all clients and servers, at any time.
    pub ttls: u32,
    /// The search takes this many steps in all orders. After them one order stands for all.
    pub depth: usize,
}

/// The coverage of a search.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Coverage {
    /// Orders of steps from beginning to end.
    pub schedules: u128,
    /// States that these orders lead through.
    pub states: usize,
    /// Ends by the client that won first: the first client, the second client, or none. After a
    /// transfer that has failed the second may still wait.
    pub won: [usize; CLIENTS + 1],
}

/// One event. Its first number is the client, the second the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Run(usize, usize),
    /// The server runs what a lost connection had left, and sees the end of the connection behind
    /// it.
    RunLeft(usize, usize),
    Read(usize, usize),
    Lose {
        client: usize,
        node: usize,
        keeps: bool,
    },
    Reconnect(usize, usize),
    Timer(usize),
    /// A TTL passes.
    Pass,
}

/// Goes through all schedules within `limits`, with `mutant` on if one is given.
///
/// # Errors
///
/// The first schedule that ends in a way that no schedule may, and how.
pub fn explore(limits: Limits, mutant: Option<Mutant>) -> Result<Coverage, String> {
    rules::run_with(mutant, || {
        let mut search = Search { known: FxHashMap::default(), coverage: Coverage::default() };
        let world = World::new(limits);
        let schedules = search.visit(&mut Vec::new(), &History::default(), world)?;
        search.coverage.schedules = schedules;
        search.coverage.states = search.known.len();
        Ok(search.coverage)
    })
}

/// What each client and each server has seen, in order.
type Seen = [Rc<Vec<u16>>; CLIENTS + NODES_MAX];

/// A sequence of events as each client and each server sees it.
#[derive(Clone, Debug, Default)]
struct History {
    seen: Seen,
    /// How much each client had seen when its attempt ended. From there on, the order of different
    /// nodes makes no difference to it.
    ended_at: [Option<usize>; CLIENTS],
}

impl History {
    fn with(&self, step: Step) -> Self {
        let mut next = self.clone();
        let (actor, kind, other) = match step {
            Step::Run(client, node) => (CLIENTS + node, 0, client),
            Step::RunLeft(client, node) => (CLIENTS + node, 1, client),
            Step::Read(client, node) => (client, 2, node),
            // What is lost is what the server has not run by then.
            Step::Lose { client, node, keeps } => {
                let ran = self.seen[CLIENTS + node].len();
                (client, 3 + usize::from(keeps) + 8 * ran, node)
            }
            Step::Reconnect(client, node) => (client, 5, node),
            Step::Timer(client) => (client, 6, 0),
            Step::Pass => {
                for row in &mut next.seen {
                    Rc::make_mut(row).push(PASS);
                }
                return next;
            }
        };
        let row = Rc::make_mut(&mut next.seen[actor]);
        row.push((kind * NODES_MAX + other) as u16);
        if let Some(&Some(ended_at)) = self.ended_at.get(actor) {
            let passed_at = row.iter().rposition(|code| *code == PASS).map_or(0, |at| at + 1);
            row[ended_at.max(passed_at)..].sort_by_key(|code| usize::from(*code) % NODES_MAX);
        }
        next
    }
}

/// The longest schedule has less than half as many steps.
const STEPS_MAX: usize = 200;
const ENDLESS: &str = "no end is in sight";

/// Every client and every server sees that a TTL passes.
const PASS: u16 = u16::MAX;

struct Search {
    /// How many schedules lead on from each state.
    known: FxHashMap<Seen, u128>,
    coverage: Coverage,
}

impl Search {
    /// Goes on from `world`, to which `path` leads.
    fn visit(
        &mut self,
        path: &mut Vec<Step>,
        history: &History,
        mut world: World,
    ) -> Result<u128, String> {
        let fault = |what: String| format!("{what} after {path:?}");
        world.check().map_err(fault)?;
        if path.len() > STEPS_MAX {
            return Err(fault(ENDLESS.to_owned()));
        }
        let mut history = history.clone();
        for client in 0..CLIENTS {
            if world.is_done(client) && history.ended_at[client].is_none() {
                history.ended_at[client] = Some(history.seen[client].len());
            }
        }
        let is_deep = path.len() >= world.depth();
        let steps = if is_deep { Vec::new() } else { world.steps() };
        let mut schedules = 0;
        if steps.is_empty() {
            self.coverage.won[world.first.unwrap_or(CLIENTS)] += 1;
            world.check_end().map_err(fault)?;
            schedules = 1;
        }
        let mut world = Some(world);
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next() {
            let next = history.with(step);
            if let Some(&from_there) = self.known.get(&next.seen) {
                schedules += from_there;
                continue;
            }
            // The last step takes the world itself, which costs less than a copy.
            let is_last = steps.peek().is_none();
            let Some(mut world) = (if is_last { world.take() } else { world.clone() }) else {
                break;
            };
            world.take(step);
            path.push(step);
            schedules += self.visit(path, &next, world)?;
            path.pop();
        }
        self.known.insert(history.seen, schedules);
        Ok(schedules)
    }
}
