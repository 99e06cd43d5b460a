//! Tables whose places are taken, given back and taken again, and the types that name such a place.
//!
//! Layer: bottom.
//!
//! # Invariants
//!
//! - While an index is kept, its place is not given back, so the index never names another entry. A
//!   reference that may outlive its entry is a handle with a generation instead.
//! - Each table has an index type of its own, so that the compiler tells them apart.

use std::marker::PhantomData;

/// Names one place of a [`Slab`].
pub(crate) trait Index: Copy + Eq {
    /// The index of a place; `None` if no index can name it.
    fn at(place: usize) -> Option<Self>;

    /// The place, counted from 0.
    fn place(self) -> usize;
}

/// Makes an index type of four bytes, counted from 0. A niche for absence would cost a subtraction
/// per use: 71 instructions per cycle of the engine.
macro_rules! index_type {
    ($(#[$doc:meta])* $visibility:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name(u32);

        impl $crate::slab::Index for $name {
            #[inline]
            fn at(place: usize) -> Option<Self> {
                u32::try_from(place).ok().map(Self)
            }

            #[inline]
            fn place(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), $crate::slab::Index::place(*self))
            }
        }
    };
}

pub(crate) use index_type;

index_type! {
    /// A slot: one lock attempt, and the lease that it becomes.
    pub(crate) SlotIndex
}

index_type! {
    /// An operation: a caller's request, until the caller takes its result.
    pub(crate) OpIndex
}

index_type! {
    /// A `Keep`: the engine's record of a lease that it keeps alive.
    pub(crate) KeepIndex
}

index_type! {
    /// A command that stands for several SETs.
    pub(crate) BatchIndex
}

index_type! {
    /// A wake whose answer the client awaits.
    pub(crate) WakeIndex
}

/// See the [module](self). A place that is taken again still has its last entry, with its memory.
#[derive(Clone, Debug)]
pub(crate) struct Slab<I, T> {
    entries: Vec<T>,
    free: Vec<I>,
    index: PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), index: PhantomData }
    }
}

impl<I: Index, T> Slab<I, T> {
    /// Takes a place; `new` makes the entry of a new place. `None` if no index could name another
    /// place.
    #[inline]
    pub(crate) fn take(&mut self, new: impl FnOnce() -> T) -> Option<I> {
        match self.free.pop() {
            Some(index) => Some(index),
            None => self.add(new),
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, new: impl FnOnce() -> T) -> Option<I> {
        let index = I::at(self.entries.len())?;
        self.entries.push(new());
        Some(index)
    }

    /// Puts `entry` into a place.
    pub(crate) fn insert(&mut self, entry: T) -> Option<I> {
        match self.free.pop() {
            Some(index) => {
                *self.at_mut(index) = entry;
                Some(index)
            }
            None => self.add(|| entry),
        }
    }

    /// Gives a place back. The next [`take`](Self::take) of the place finds its entry there.
    #[inline]
    pub(crate) fn give_back(&mut self, index: I) {
        self.free.push(index);
    }

    /// The place that the next [`take`](Self::take) takes.
    pub(crate) fn next(&self) -> usize {
        self.free.last().map_or(self.entries.len(), |index| index.place())
    }

    #[expect(clippy::indexing_slicing, reason = "an index is kept only while its place is")]
    #[inline]
    pub(crate) fn at(&self, index: I) -> &T {
        &self.entries[index.place()]
    }

    #[expect(clippy::indexing_slicing, reason = "an index is kept only while its place is")]
    #[inline]
    pub(crate) fn at_mut(&mut self, index: I) -> &mut T {
        &mut self.entries[index.place()]
    }

    /// The entry of an index that may come from elsewhere.
    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.entries.get(index.place())
    }

    /// Every entry with its index, even of places that were given back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let named = self.entries.iter().enumerate();
        named.filter_map(|(place, entry)| I::at(place).map(|index| (index, entry)))
    }

    /// Every index, even of places that were given back.
    pub(crate) fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.entries.len()).map_while(I::at)
    }

    /// How many places are taken.
    pub(crate) const fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_again_with_what_was_left_there() {
        let mut slab = Slab::<SlotIndex, String>::default();
        let first = slab.take(|| "first".to_owned()).unwrap();
        let second = slab.insert("second".to_owned()).unwrap();
        assert_eq!((first.place(), second.place(), slab.in_use()), (0, 1, 2));
        slab.give_back(first);
        assert_eq!((slab.next(), slab.in_use()), (0, 1));
        let again = slab.take(|| unreachable!("the place is there")).unwrap();
        assert_eq!((again, slab.at(again).as_str()), (first, "first"));
        assert_eq!(slab.next(), 2);
    }

    #[test]
    fn no_index_names_a_place_beyond_its_range() {
        assert_eq!(SlotIndex::at(1 << 32), None);
        let last = SlotIndex::at(u32::MAX as usize).unwrap();
        assert_eq!(last.place(), u32::MAX as usize);
    }
}
