//! One client for many threads and tasks: eight threads and eight futures sell one stock.
//!
//! The example needs no runtime: the futures run on a loop of a few lines. They also run on tokio,
//! smol or any other runtime.
//!
//! Run it with `cargo run --example threads_and_tasks`, or with `REDBOLT_NODES` set.

mod common;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use redbolt::{Client, Config, LockError, now};

const TTL: Duration = Duration::from_secs(5);
const STOCK: u32 = 4_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let found = common::nodes()?;
    let client = Client::connect(Config::new(&found.urls)?)?;
    let stock = AtomicU32::new(STOCK);
    let sold = AtomicU32::new(0);
    let begin = now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| sell_all(&client, &stock, &sold).expect("a quorum of nodes"));
            scope.spawn(|| {
                block_on(sell_all_async(&client, &stock, &sold)).expect("a quorum of nodes");
            });
        }
    });
    let elapsed = begin.until(now());
    let sold = sold.into_inner();
    println!("{sold} of {STOCK} sold in {elapsed:?} by 16 sellers");

    // The client sends the releases that it still owes to the nodes before the program ends.
    let owed = client.shutdown(Duration::from_secs(1)).wait();
    println!("{owed} releases owed");
    if sold != STOCK {
        return Err(format!("{sold} pieces were sold of {STOCK}").into());
    }
    Ok(())
}

fn sell_all(client: &Client, stock: &AtomicU32, sold: &AtomicU32) -> Result<(), LockError> {
    loop {
        let guard = client.lock("stock", TTL).wait()?;
        if !sell(stock, sold) {
            return Ok(());
        }
        // The client gives the lease to the next seller without asking any node, while enough
        // validity is left.
        drop(guard);
    }
}

async fn sell_all_async(
    client: &Client,
    stock: &AtomicU32,
    sold: &AtomicU32,
) -> Result<(), LockError> {
    loop {
        let _guard = client.lock("stock", TTL).await?;
        if !sell(stock, sold) {
            return Ok(());
        }
    }
}

/// Read, then write: without the lock two sellers would sell one piece twice.
fn sell(stock: &AtomicU32, sold: &AtomicU32) -> bool {
    let left = stock.load(Ordering::Relaxed);
    if left == 0 {
        return false;
    }
    thread::yield_now();
    stock.store(left - 1, Ordering::Relaxed);
    sold.fetch_add(1, Ordering::Relaxed);
    true
}

/// Wakes the thread that waits in [`block_on`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}
