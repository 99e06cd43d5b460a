//! A side table, with entries for a few of the entries of another table.
//!
//! Layer: bottom.

use crate::slab::{Index, Slab, index_type};

index_type! {
    EntryIndex
}

/// See the [module](self). The other table's index finds an entry; iteration follows the order in
/// which entries were added.
#[derive(Clone, Debug)]
pub(crate) struct Beside<K, T> {
    places: Vec<Option<EntryIndex>>,
    entries: Slab<EntryIndex, Option<T>>,
    order: Vec<K>,
}

impl<K, T> Default for Beside<K, T> {
    fn default() -> Self {
        Self { places: Vec::new(), entries: Slab::default(), order: Vec::new() }
    }
}

impl<K: Index, T> Beside<K, T> {
    #[inline]
    fn place(&self, key: K) -> Option<EntryIndex> {
        self.places.get(key.place()).copied().flatten()
    }

    #[inline]
    pub(crate) fn contains(&self, key: K) -> bool {
        self.place(key).is_some()
    }

    pub(crate) fn get(&self, key: K) -> Option<&T> {
        self.entries.at(self.place(key)?).as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let place = self.place(key)?;
        self.entries.at_mut(place).as_mut()
    }

    /// The entry of `key`; `new` makes it if there is no entry.
    pub(crate) fn enter(&mut self, key: K, new: impl FnOnce() -> T) -> Option<&mut T> {
        if !self.contains(key) {
            let entry = self.entries.insert(Some(new()))?;
            if self.places.len() <= key.place() {
                self.places.resize(key.place() + 1, None);
            }
            *self.places.get_mut(key.place())? = Some(entry);
            self.order.push(key);
        }
        self.get_mut(key)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        let entry = self.places.get_mut(key.place())?.take()?;
        self.order.retain(|&other| other != key);
        self.entries.give_back(entry);
        self.entries.at_mut(entry).take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.order.iter().filter_map(|&key| Some((key, self.get(key)?)))
    }
}
