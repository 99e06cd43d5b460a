//! [`Own`]: what belongs to one process. The child of a fork leaves it alone, also at its end.

use std::process;

/// A value of the process that made it.
#[derive(Debug)]
pub(crate) struct Own<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    pub(crate) fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// The value, in the process that made it, unless it was taken.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_here())
    }

    /// Takes the value out.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_here() { self.value.take() } else { None }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}
