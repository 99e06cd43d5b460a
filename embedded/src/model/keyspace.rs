//! [`Keyspace`]: the keys of one server, their values and ends.
//!
//! Layer: sans-IO. Time is the server's wall clock in milliseconds, passed in.
//!
//! # Invariants
//!
//! - A key lives as long as `now <= ends_at`: strictly longer than its TTL, as on a real server.
//! - Expired keys that no command touches do not pile up: the model sweeps once the keyspace has
//!   doubled and more than [`SWEEP_LEN_MIN`] keys are new.

use std::collections::BTreeMap;

/// The number of databases for `SELECT`.
pub(crate) const DATABASES: usize = 16;

// Ordered: two runs of one simulation seed must not differ, not even in iteration order.
pub(super) type Map<K, V> = BTreeMap<K, V>;

/// The value of a key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
}

/// One key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// Last millisecond of the key's life.
    pub(crate) ends_at_ms: Option<i64>,
}

/// All keys of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    databases: [Map<Vec<u8>, Entry>; DATABASES],
    written_since_sweep: usize,
    /// How many keys were removed because their end had come.
    pub(crate) expired: u64,
}

impl Keyspace {
    /// The key's entry if it lives at `now_ms`. An expired entry is removed first.
    pub(crate) fn entry(&mut self, db: usize, key: &[u8], now_ms: i64) -> Option<&mut Entry> {
        if self.database(db).get(key)?.is_expired(now_ms) {
            self.remove(db, key);
            self.expired += 1;
            return None;
        }
        self.database(db).get_mut(key)
    }

    /// The key's entry if it lives at `now_ms`. Changes nothing.
    pub(crate) fn look(&self, db: usize, key: &[u8], now_ms: i64) -> Option<&Entry> {
        self.databases.get(db)?.get(key).filter(|entry| !entry.is_expired(now_ms))
    }

    /// Writes a string; `ends_at_ms` replaces the end that the key had.
    pub(crate) fn set(
        &mut self,
        db: usize,
        key: &[u8],
        text: &[u8],
        ends_at_ms: Option<i64>,
        now_ms: i64,
    ) {
        if let Some(entry) = self.database(db).get_mut(key) {
            if let Value::Text(old) = &mut entry.value {
                old.clear();
                old.extend_from_slice(text);
            } else {
                entry.value = Value::Text(text.to_vec());
            }
            entry.ends_at_ms = ends_at_ms;
            return;
        }
        self.insert(db, key, Entry { value: Value::Text(text.to_vec()), ends_at_ms }, now_ms);
    }

    /// Appends to a list; makes the list if needed. Returns its new length; `None` for a string.
    pub(crate) fn push<'item>(
        &mut self,
        db: usize,
        key: &[u8],
        items: impl Iterator<Item = &'item [u8]>,
        now_ms: i64,
    ) -> Option<usize> {
        if self.entry(db, key, now_ms).is_none() {
            let list = Value::List(Vec::new());
            self.insert(db, key, Entry { value: list, ends_at_ms: None }, now_ms);
        }
        let len = match self.database(db).get_mut(key).map(|entry| &mut entry.value) {
            Some(Value::List(list)) => {
                list.extend(items.map(<[u8]>::to_vec));
                list.len()
            }
            Some(Value::Text(_)) | None => return None,
        };
        Some(len)
    }

    /// Moves the end of a key that is known to live.
    pub(crate) fn set_end(&mut self, db: usize, key: &[u8], ends_at_ms: i64) {
        if let Some(entry) = self.database(db).get_mut(key) {
            entry.ends_at_ms = Some(ends_at_ms);
        }
    }

    /// Removes the key, expired or not. Returns whether it was there.
    pub(crate) fn remove(&mut self, db: usize, key: &[u8]) -> bool {
        self.database(db).remove(key).is_some()
    }

    /// Removes the key if it lives at `now_ms`. Returns whether it did.
    pub(crate) fn delete(&mut self, db: usize, key: &[u8], now_ms: i64) -> bool {
        self.entry(db, key, now_ms).is_some() && self.remove(db, key)
    }

    /// Empties all databases.
    pub(crate) fn clear(&mut self) {
        self.databases.iter_mut().for_each(|database| database.clear());
    }

    /// Keys of one database that live at `now_ms`, and how many of them have an end.
    pub(crate) fn count(&mut self, db: usize, now_ms: i64) -> (usize, usize) {
        self.sweep(now_ms);
        let entries = self.database(db);
        let volatile = entries.values().filter(|entry| entry.ends_at_ms.is_some()).count();
        (entries.len(), volatile)
    }

    /// Removes every key whose end has come.
    pub(crate) fn sweep(&mut self, now_ms: i64) {
        self.written_since_sweep = 0;
        for database in &mut self.databases {
            let before = database.len();
            database.retain(|_, entry| !entry.is_expired(now_ms));
            self.expired += u64::try_from(before - database.len()).unwrap_or(0);
        }
    }

    /// The names of the keys of a database that live at `now_ms`.
    pub(crate) fn names(&self, db: usize, now_ms: i64) -> impl Iterator<Item = &[u8]> {
        let keys = self.databases.get(db).into_iter().flatten();
        keys.filter(move |(_, entry)| !entry.is_expired(now_ms)).map(|(key, _)| &**key)
    }

    /// All keys, including expired ones that are not removed yet.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.databases.iter().map(Map::len).sum()
    }

    fn insert(&mut self, db: usize, key: &[u8], entry: Entry, now_ms: i64) {
        self.written_since_sweep += 1;
        if self.written_since_sweep > SWEEP_LEN_MIN
            && self.written_since_sweep > self.database(db).len() / 2
        {
            self.sweep(now_ms);
        }
        self.database(db).insert(key.to_vec(), entry);
    }

    /// `SELECT` has checked `db`; any other number means the first database.
    fn database(&mut self, db: usize) -> &mut Map<Vec<u8>, Entry> {
        let index = if db < DATABASES { db } else { 0 };
        #[expect(clippy::indexing_slicing, reason = "the line above keeps it in range")]
        &mut self.databases[index]
    }
}

impl Entry {
    fn is_expired(&self, now_ms: i64) -> bool {
        self.ends_at_ms.is_some_and(|ends_at_ms| now_ms > ends_at_ms)
    }
}

/// Below this many new keys a sweep is not worth its pass.
const SWEEP_LEN_MIN: usize = 1024;
