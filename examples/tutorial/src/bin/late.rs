//! A keeps the lock while it works for long, and loses it while it is stopped.

use std::{thread, time::Duration};

use redbolt::LockOptions;
use shop::{Result, Shop};

const TTL: Duration = Duration::from_millis(500);

fn main() -> Result {
    let shop = Shop::open()?;
    let (stock, a, b) = (shop.stock()?, shop.client()?, shop.client()?);

    let lease = a.lock("stock", LockOptions::new(TTL).keep_alive()).wait()?;
    thread::sleep(TTL * 4); // a long payment
    println!("A is paid after 2 s; it has the lock: {}", lease.is_valid());
    let is_taken = b.try_lock("stock", TTL).wait().is_err_and(|error| error.is_taken());
    println!("B tries; the lock is taken: {is_taken}");
    assert!(lease.is_valid() && is_taken);
    lease.unlock().wait()?;

    let lease = a.lock("stock", TTL).wait()?; // nobody extends it, as if A were stopped from here
    let a_read = shop::read(&stock)?;
    thread::sleep(TTL * 2);
    for _ in 0..3 {
        let lease = b.lock("stock", TTL).wait()?;
        shop::write(&stock, shop::read(&stock)? - 1)?;
        lease.unlock().wait()?;
    }
    println!("A was stopped; B has sold 3 pieces, left: {}", shop::read(&stock)?);
    shop::write(&stock, a_read - 1)?; // A goes on, and does not look at its lease
    println!("A has sold 1 piece, left: {}", shop::read(&stock)?);
    assert_eq!(shop::read(&stock)?, 99);

    println!("A looks at its lease: {} ms left", lease.remaining().as_millis());
    println!("A unlocks: {}", lease.unlock().wait().expect_err("the lease is over"));
    Ok(())
}
