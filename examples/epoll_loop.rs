//! Locks inside an epoll loop that knows only one file descriptor of Redbolt.
//!
//! The loop is an order desk: a datagram names an article, the desk takes the article's lock, sells
//! one piece while it holds it, and answers. Many orders are under way at once, one thread serves
//! them all, and only `epoll_wait` ever blocks.
//!
//! Run it with `cargo run --example epoll_loop`, or with `REDBOLT_NODES` set.

mod common;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("epoll is Linux's; `kqueue` takes the same file descriptor");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use redbolt::driver::{Driver, Outcome};
    use redbolt::engine::OpId;
    use redbolt::{Config, LockError};
    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, wait};
    use rustix::io::retry_on_intr;
    use rustix::time::Timespec;

    const TTL: Duration = Duration::from_secs(5);
    const LOCKS: u64 = 0;
    const ORDERS: u64 = 1;
    const CLOSING: &[u8] = b"closing time";
    const ARTICLES: usize = 10;
    /// Orders for each article.
    const DEMAND: usize = 20;

    pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
        let found = crate::common::nodes()?;
        let mut driver = Driver::standalone(Config::new(&found.urls)?)?;
        let orders = UdpSocket::bind("127.0.0.1:0")?;
        orders.set_nonblocking(true)?;

        let epoll = create(CreateFlags::CLOEXEC)?;
        add(&epoll, &driver, EventData::new_u64(LOCKS), EventFlags::IN)?;
        add(&epoll, &orders, EventData::new_u64(ORDERS), EventFlags::IN)?;

        let desk = orders.local_addr()?;
        let customers = std::thread::spawn(move || {
            let answers = order_all(desk);
            UdpSocket::bind("127.0.0.1:0")?.send_to(CLOSING, desk)?;
            answers
        });
        let mut stock = [DEMAND; ARTICLES];
        let mut open: HashMap<OpId, (SocketAddr, usize)> = HashMap::new();
        let mut events = Vec::with_capacity(16);
        let (mut is_open, mut wake_ups) = (true, 0_u32);

        driver.drive(); // begins to connect
        while is_open || driver.in_flight() > 0 {
            // The driver says how long the loop may sleep; `None` means for ever.
            let timeout = driver.timeout().map(Timespec::try_from).transpose()?;
            retry_on_intr(|| wait(&epoll, spare_capacity(&mut events), timeout.as_ref()))?;
            wake_ups += 1;
            for event in events.drain(..) {
                if event.data.u64() == ORDERS {
                    is_open = take_orders(&orders, &mut driver, &mut open)?;
                }
            }
            // `drive` is cheap enough for every wake-up, and a wake-up by the timeout needs it as
            // well.
            driver.drive();
            while let Some(done) = driver.completion() {
                let Outcome::Lock(result) = done.result else { continue };
                let Some((customer, article)) = open.remove(&done.id) else { continue };
                let lease = result?;
                let Some(left) = stock.get_mut(article) else { continue };
                // The check comes right before the effect.
                if lease.is_valid() && *left > 0 {
                    *left -= 1;
                }
                orders.send_to(left.to_string().as_bytes(), customer)?;
                // After the lease's drop, the loop's next `timeout` is zero.
            }
        }
        driver.shutdown(Duration::from_secs(1));

        let answers = customers.join().map_err(|_| "the customers failed")??;
        println!("{answers} orders for {ARTICLES} articles, answered in {wake_ups} wake-ups");
        if answers != ARTICLES * DEMAND {
            return Err(format!("{answers} answers to {} orders", ARTICLES * DEMAND).into());
        }
        Ok(())
    }

    /// Reads all orders that have come, and begins a lock for each. Returns false once there will
    /// be no more.
    fn take_orders(
        orders: &UdpSocket,
        driver: &mut Driver,
        open: &mut HashMap<OpId, (SocketAddr, usize)>,
    ) -> Result<bool, LockError> {
        let mut buffer = [0; 16];
        while let Ok((len, customer)) = orders.recv_from(&mut buffer) {
            if buffer.get(..len) == Some(CLOSING) {
                return Ok(false);
            }
            let text = buffer.get(..len).and_then(|text| std::str::from_utf8(text).ok());
            let Some(article) = text.and_then(|text| text.parse().ok()) else { continue };
            // Orders for an article that is being sold wait in their order.
            let id = driver.lock(format!("article:{article}"), TTL)?;
            open.insert(id, (customer, article));
        }
        Ok(true)
    }

    /// One customer per article: each orders again once it is served.
    fn order_all(desk: SocketAddr) -> std::io::Result<usize> {
        let customers = (0..ARTICLES).map(|_| UdpSocket::bind("127.0.0.1:0"));
        let customers: Vec<_> = customers.collect::<Result<_, _>>()?;
        let mut answers = 0;
        for round in 1..=DEMAND {
            for (article, customer) in customers.iter().enumerate() {
                customer.send_to(article.to_string().as_bytes(), desk)?;
            }
            for customer in &customers {
                customer.set_read_timeout(Some(Duration::from_secs(10)))?;
                let mut buffer = [0; 16];
                let len = customer.recv(&mut buffer)?;
                let left = (DEMAND - round).to_string();
                answers += usize::from(buffer.get(..len) == Some(left.as_bytes()));
            }
        }
        Ok(answers)
    }
}
