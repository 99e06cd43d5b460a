//! A command's output while it waits for a lock: on a terminal for how long, and on stderr why.
//!
//! Its own client looks, in its own thread, so that no look delays the lock.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use redbolt::{Cause, Client, Config, now};

use crate::duration::FOREVER;
use crate::exit::{DOCTOR, causes};
use crate::inspect::{KeyState, NodeKey, SeenLock};
use crate::output::{note_between, short, shown, slots_of};
use crate::progress::Progress;
use crate::{holders, inspect, look};

/// How long a command waits before it asks the nodes why.
const FIRST: Duration = Duration::from_secs(2);

/// The least time between two looks. The usual pause begins with it and doubles up to
/// [`PAUSE_MAX`]: a list of clients costs the nodes time.
const PAUSE: Duration = Duration::from_secs(5);

const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The longest time until the thread notices the end of the wait.
const STEP: Duration = Duration::from_millis(50);

/// Tells why the command waits for a lock, until it is dropped.
pub(crate) struct Waiting {
    _end: Sender<()>,
    _progress: Progress,
}

impl Waiting {
    pub(crate) fn start(config: &Config, keys: &[&[u8]], is_shared: bool, wait: Duration) -> Self {
        let names: Vec<_> = keys.iter().map(|key| shown(key)).collect();
        let mut text = format!("waiting for {}", names.join(", "));
        if wait != FOREVER {
            text.push_str(&format!(", at most {}", short(wait)));
        }
        let (end, ended) = channel();
        let teller = Teller {
            config: config.clone(),
            keys: keys.iter().map(|&key| key.to_owned()).collect(),
            names: names.join(", "),
            is_shared,
            ended,
            said: Why::Unclear,
        };
        // Without a thread there is no output, but still a lock.
        let _ = thread::Builder::new().name("waiting".into()).spawn(move || teller.run());
        Self { _end: end, _progress: Progress::spinner(text) }
    }
}

/// Why the command waits for the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// Only this many nodes can vote.
    NoQuorum(u32),
    /// A lock and its holder.
    Held(String),
    /// A lock is held, but the nodes do not let this user see the holder.
    HolderUnknown,
    /// Others hold slots that the command needs.
    NoSlot,
    /// The lock changes hands, is free, or a node has just begun to hang.
    Unclear,
}

struct Teller {
    config: Config,
    /// In the order of their bytes, in which they are waited for.
    keys: Vec<Vec<u8>>,
    names: String,
    /// The lock has slots, so it may have many holders.
    is_shared: bool,
    /// The command drops its sender when the wait is over.
    ended: Receiver<()>,
    /// The reason in the last output.
    said: Why,
}

impl Teller {
    fn run(mut self) -> Option<()> {
        if self.ended.recv_timeout(FIRST) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
        let client = look::opened(self.config.clone()).ok()?;
        let mut pause = PAUSE;
        loop {
            let why = self.look(&client)?;
            if self.ended.try_recv() != Err(TryRecvError::Empty) {
                return None;
            }
            if why != Why::Unclear && why != self.said {
                note_between(self.sentence(&client, &why));
                self.said = why;
            }
            let (soonest, end) = (now() + PAUSE, now() + pause);
            let was_ready = client.is_ready();
            while now() < end && (now() < soonest || client.is_ready() == was_ready) {
                if self.ended.recv_timeout(STEP) != Err(RecvTimeoutError::Timeout) {
                    return None;
                }
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn look(&self, client: &Client) -> Option<Why> {
        if !client.is_ready() {
            return Some(Why::NoQuorum(client.voters().count()));
        }
        if self.is_shared {
            return Some(Why::NoSlot);
        }
        let mut why = Why::Unclear;
        // The last key comes first: this call may itself hold the keys before the key that it waits
        // for.
        for key in self.keys.iter().rev() {
            let seen = inspect::holder(client, key).ok()?;
            if let Some(other) = seen.other_data() {
                return Some(Why::Held(format!("{}: {other}", shown(key))));
            }
            let SeenLock { holder, nodes, .. } = seen;
            if let Some(holder) = holder {
                let unknown = holders::why_unlisted(&holder).filter(|_| holder.name().is_none());
                let unknown = unknown.map(|why| format!(": {why}"));
                let words = holders::words(&holder) + &holders::since(&holder);
                let unknown = unknown.unwrap_or_default();
                return Some(Why::Held(format!("{}, held by {words}{unknown}", shown(key))));
            }
            let is_denied = |node: &NodeKey| node.state == KeyState::Error(Cause::NoPermission);
            if nodes.iter().any(is_denied) {
                why = Why::HolderUnknown;
            }
        }
        Some(why)
    }

    fn sentence(&self, client: &Client, why: &Why) -> String {
        let key = &self.names;
        match why {
            Why::NoQuorum(voters) => {
                let (nodes, quorum) = (client.nodes().wait(), client.quorum());
                let causes = causes(&nodes).map(|causes| format!(" ({causes})"));
                format!(
                    "waits for {key}: only {voters} of {} nodes can vote, {quorum} are needed{}; \
                     {DOCTOR}",
                    nodes.len(),
                    causes.unwrap_or_default()
                )
            }
            Why::Held(held) => format!("waits for {held}"),
            Why::NoSlot => {
                let slots = slots_of(&self.keys.concat());
                format!("waits for {key}: redbolt ls {slots} shows the holders of its slots")
            }
            Why::HolderUnknown | Why::Unclear => {
                format!("waits for {key}: this user may not see who holds it")
            }
        }
    }
}
