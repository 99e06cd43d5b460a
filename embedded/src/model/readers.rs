//! [`Readers`]: which session read which key and must hear of its next change, and the changes
//! since.
//!
//! Layer: sans-IO. As on a real server a key is a name, whatever database it is in.
//!
//! # Invariants
//!
//! - A change of a key removes its readers: each hears of one change, until it reads again.

use super::keyspace::Map;

/// The most keys that are tracked at once, as on servers (`tracking-table-max-keys`).
const KEYS_MAX: usize = 1_000_000;

/// The sessions that read each key since its last change.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    keys: Map<Vec<u8>, Vec<u64>>,
    changed: Vec<Changed>,
}

/// A change of keys that sessions have read.
#[derive(Debug)]
pub(crate) enum Changed {
    Key {
        key: Vec<u8>,
        readers: Vec<u64>,
    },
    /// A database was emptied: all reads are void.
    All,
}

impl Readers {
    /// A session has read a key and asked to hear of its next change.
    pub(crate) fn note_read(&mut self, key: &[u8], session: u64) {
        if self.keys.len() >= KEYS_MAX && !self.keys.contains_key(key) {
            // As servers do at their bound: the readers of one key hear that it is void.
            if let Some(key) = self.keys.keys().next().cloned() {
                self.note_change(&key);
            }
        }
        let readers = self.keys.entry(key.to_vec()).or_default();
        if !readers.contains(&session) {
            readers.push(session);
        }
    }

    /// A key was written, removed, or has expired.
    pub(crate) fn note_change(&mut self, key: &[u8]) {
        if let Some(readers) = self.keys.remove(key) {
            self.changed.push(Changed::Key { key: key.to_vec(), readers });
        }
    }

    /// A database was emptied by a command.
    pub(crate) fn note_flush(&mut self) {
        self.keys.clear();
        self.changed.push(Changed::All);
    }

    /// Whether no key has readers.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// A session has ended: it hears of no further changes.
    pub(crate) fn leave(&mut self, session: u64) {
        self.keys.retain(|_, readers| {
            readers.retain(|reader| *reader != session);
            !readers.is_empty()
        });
    }

    /// The changes since the last call, oldest first.
    pub(crate) fn changes(&mut self) -> std::vec::Drain<'_, Changed> {
        self.changed.drain(..)
    }
}
