//! A driver inside tokio's own loop, through `AsyncFd`, without a thread or a mio loop of your own.
//!
//! One task owns the driver. Other tasks send it the keys to lock, and get leases back over a
//! channel. They also give a lease back by a message, so that the owner wakes up and sends the
//! release. Sixty tasks count this way.
//!
//! (If an I/O thread of Redbolt's own is acceptable, `Client` has all of this built in:
//! `examples/threads_and_tasks.rs`.)
//!
//! Run it with `cargo run --example tokio_fd`, or with `REDBOLT_NODES` set.

mod common;

use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::{Config, Lease, LockError, LockOptions, Retry};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

const TTL: Duration = Duration::from_secs(5);
const TASKS: u32 = 60;
const TURNS: u32 = 10;

enum Message {
    Lock { key: String, reply: oneshot::Sender<Result<Lease, LockError>> },
    Unlock(Lease),
}

type Anything = Result<(), Box<dyn std::error::Error>>;

fn main() -> Anything {
    let found = common::nodes()?;
    let driver = Driver::standalone(Config::new(&found.urls)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let (locks, messages) = mpsc::unbounded_channel();

    let counter = Rc::new(Cell::new(0));
    let begin = redbolt::now();
    local.block_on(&runtime, async {
        let owner = tokio::task::spawn_local(serve(driver, messages));
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::task::spawn_local(count(task, locks.clone(), Rc::clone(&counter))))
            .collect();
        drop(locks);
        for task in tasks {
            task.await??;
        }
        // The owner ends once all senders are gone.
        owner.await?.map_err(Box::<dyn std::error::Error>::from)
    })?;

    let (counted, wanted) = (counter.get(), TASKS * TURNS);
    println!(
        "{TASKS} tasks counted to {counted} in {:?}, on one thread",
        begin.until(redbolt::now())
    );
    if counted != wanted {
        return Err(format!("counted to {counted} instead of {wanted}").into());
    }
    Ok(())
}

/// Reads, lets other tasks run, and writes: without the lock two tasks would lose a count.
async fn count(
    task: u32,
    locks: mpsc::UnboundedSender<Message>,
    counter: Rc<Cell<u32>>,
) -> Result<(), LockError> {
    for _ in 0..TURNS {
        let (reply, answer) = oneshot::channel();
        let key = "counter".to_owned();
        let _ = locks.send(Message::Lock { key, reply });
        let lease = answer.await.map_err(|_| LockError::Closed)??;
        let value = counter.get();
        tokio::task::yield_now().await;
        if lease.is_valid() {
            counter.set(value + 1);
        }
        if (value + 1).is_multiple_of(100) {
            println!("task {task} made it {}", value + 1);
        }
        let _ = locks.send(Message::Unlock(lease));
    }
    Ok(())
}

/// Drives the sockets, and carries out messages until all senders are gone.
async fn serve(
    mut driver: Driver,
    mut messages: mpsc::UnboundedReceiver<Message>,
) -> Result<(), std::io::Error> {
    // A duplicate of the driver's descriptor, which stays open for as long as the loop watches it.
    #[expect(deprecated, reason = "what replaces it takes unsafe code, to promise just that")]
    let readiness = AsyncFd::new(driver.as_fd().try_clone_to_owned()?)?;
    driver.drive(); // begins to connect
    let mut waiting = HashMap::new();
    loop {
        let timeout = driver.timeout();
        let sleep = async {
            match timeout {
                // Tokio's timer would turn zero into a millisecond.
                Some(Duration::ZERO) => {}
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            guard = readiness.readable() => {
                // The flag is cleared before `drive`, so a socket that becomes ready during `drive`
                // wakes this task again.
                guard?.clear_ready();
            }
            message = messages.recv() => match message {
                Some(message) => begin(&mut driver, message, &mut waiting),
                None => break,
            },
            () = sleep => {}
        }
        // All messages that came meanwhile go out with one write per node.
        while let Ok(message) = messages.try_recv() {
            begin(&mut driver, message, &mut waiting);
        }
        driver.drive();
        while let Some(done) = driver.completion() {
            let Outcome::Lock(result) = done.result else { continue };
            if let Some(reply) = waiting.remove(&done.id) {
                // If the receiver is gone, the lease that comes back is dropped, and so released.
                let _: Result<(), _> = oneshot::Sender::send(reply, result);
            }
        }
    }
    driver.shutdown(Duration::from_secs(1));
    Ok(())
}

fn begin(
    driver: &mut Driver,
    message: Message,
    waiting: &mut HashMap<redbolt::engine::OpId, oneshot::Sender<Result<Lease, LockError>>>,
) {
    match message {
        Message::Lock { key, reply } => {
            let patient =
                LockOptions::new(TTL).retry(Retry::default().timeout(Duration::from_secs(60)));
            match driver.lock(key, patient) {
                Ok(id) => drop(waiting.insert(id, reply)),
                Err(why) => drop(reply.send(Err(why))),
            }
        }
        Message::Unlock(lease) => drop(lease),
    }
}
