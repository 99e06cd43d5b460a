//! The shop: a stock that loses updates unless its workers take turns, and the sales.
//!
//! A sale reads how much is left, pauses, and writes one less. Programs that keep their stock in a
//! file or a plain key do the same. Two sales at once sell the same piece twice.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use redbolt::inspect::Notice;

use crate::exit::Failure;
use crate::times::{histogram, record};

/// How long a sale takes between its read and its write.
const PAUSE: Duration = Duration::from_millis(1);

/// The stock, on several shelves with a lock each.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) stock: u32,
    shelves: Vec<AtomicU32>,
    sold: AtomicU32,
    /// Locks that each node granted.
    pub(crate) granted: Vec<AtomicU64>,
    /// How long each lock took, in nanoseconds.
    acquire: Mutex<Histogram<u64>>,
    closed: AtomicBool,
    /// Notices about nodes that the view has not shown yet.
    notices: Mutex<Vec<Notice>>,
}

impl Shop {
    /// `stock` pieces on `shelf_count` shelves.
    pub(crate) fn open(stock: u32, shelf_count: u32, node_count: usize) -> Result<Self, Failure> {
        let share = |shelf| stock / shelf_count + u32::from(shelf < stock % shelf_count);
        Ok(Self {
            stock,
            shelves: (0..shelf_count).map(|shelf| AtomicU32::new(share(shelf))).collect(),
            sold: AtomicU32::new(0),
            granted: (0..node_count).map(|_| AtomicU64::new(0)).collect(),
            acquire: Mutex::new(histogram()?),
            closed: AtomicBool::new(false),
            notices: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn tell(&self, notice: Notice) {
        if let Ok(mut notices) = self.notices.lock() {
            notices.push(notice);
        }
    }

    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        self.notices.lock().map(|mut notices| std::mem::take(&mut *notices)).unwrap_or_default()
    }

    /// The first shelf with stock, from `wanted` on; `None` if there is none.
    pub(crate) fn shelf(&self, wanted: usize) -> Option<usize> {
        let count = self.shelves.len();
        (0..count).map(|step| (wanted + step) % count).find(|&shelf| self.left_on(shelf) > 0)
    }

    /// Sells one piece from `shelf`, unless it is empty or `may_write` is false right before the
    /// write.
    pub(crate) fn sell(&self, shelf: usize, may_write: impl FnOnce() -> bool) {
        let left = self.left_on(shelf);
        if left == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
        if may_write()
            && let Some(count) = self.shelves.get(shelf)
        {
            count.store(left - 1, Ordering::SeqCst);
            self.sold.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn note_lock(&self, took: Duration, voters: u32) {
        for (node, granted) in self.granted.iter().enumerate() {
            if voters >> node & 1 == 1 {
                granted.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.with_latency(|acquire| record(acquire, took));
    }

    pub(crate) fn with_latency<R>(&self, read: impl FnOnce(&mut Histogram<u64>) -> R) -> R {
        // A panic can leave no half-changed histogram behind.
        read(&mut self.acquire.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(crate) fn sold(&self) -> u32 {
        self.sold.load(Ordering::SeqCst)
    }

    /// The stock left on the shelves.
    pub(crate) fn left(&self) -> u32 {
        (0..self.shelves.len()).map(|shelf| self.left_on(shelf)).sum()
    }

    /// Pieces that workers sold more than once: sales and rest, less the stock.
    pub(crate) fn oversold(&self) -> u32 {
        // Sales first: a sale between the two looks makes the sum too small, never too large.
        let sold = self.sold();
        (sold + self.left()).saturating_sub(self.stock)
    }

    /// Stops further sales.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn left_on(&self, shelf: usize) -> u32 {
        self.shelves.get(shelf).map_or(0, |count| count.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_the_stock_is_on_the_shelves_and_can_be_sold() {
        let shop = Shop::open(10, 4, 0).unwrap();
        assert_eq!(shop.left(), 10);
        while let Some(shelf) = shop.shelf(3) {
            shop.sell(shelf, || true);
        }
        assert_eq!((shop.sold(), shop.left(), shop.oversold()), (10, 0, 0));
    }

    #[test]
    fn a_sale_without_a_lock_at_its_end_writes_nothing() {
        let shop = Shop::open(1, 1, 0).unwrap();
        shop.sell(0, || false);
        assert_eq!((shop.sold(), shop.left()), (0, 1));
    }
}
