//! Names with several addresses: each is tried, and the name is asked for again when none serves.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::{Driver, clock};
use crate::config::Config;
use crate::engine::NodeState;
use crate::error::Cause;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// An address where nobody listens.
fn closed() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address")
}

#[track_caller]
fn until(driver: &mut Driver, mut condition: impl FnMut(&mut Driver) -> bool) {
    let end = clock::now() + PATIENCE;
    while !condition(driver) {
        assert!(clock::now() < end, "{:?}", driver.nodes());
        driver.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A driver for a name that no name server knows, and these addresses for it.
fn driver_of(addresses: Vec<SocketAddr>) -> Driver {
    // Names below this domain have no address by its definition (RFC 6761).
    let config = Config::new(["redis://locks.invalid:6379"]).expect("an address");
    let mut driver = Driver::standalone(config).expect("a poll");
    driver.links.first_mut().expect("a node").set_addresses(addresses);
    driver
}

#[test]
fn each_address_of_a_name_is_tried_until_one_serves() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let node = listener.local_addr().expect("its address");
    for addresses in [vec![node], vec![closed(), node], vec![closed(), closed(), node, closed()]] {
        let mut driver = driver_of(addresses);
        until(&mut driver, |driver| driver.nodes()[0].state == NodeState::Greeting);
        assert_eq!(driver.nodes()[0].name, "locks.invalid:6379");
    }
}

#[test]
fn a_name_none_of_whose_addresses_serves_is_asked_for_again() {
    let mut driver = driver_of(vec![closed(), closed()]);
    until(&mut driver, |driver| driver.nodes()[0].cause == Cause::ConnectionRefused);
    until(&mut driver, |driver| driver.nodes()[0].cause == Cause::NameUnknown);
}
