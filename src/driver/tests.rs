//! Names with several addresses: the driver tries each, and looks the name up again if none works.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(feature = "tls")]
use std::sync::mpsc::channel;
use std::time::Duration;

#[cfg(feature = "tls")]
use socket2::{Domain, Socket, Type};

use super::{Driver, clock};
use crate::config::Config;
use crate::engine::NodeState;
use crate::error::Cause;

/// How long a test waits for an event that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address where no server listens.
fn closed() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address")
}

#[track_caller]
fn until(driver: &mut Driver, mut condition: impl FnMut(&mut Driver) -> bool) {
    let end = clock::now() + PATIENCE;
    while !condition(driver) {
        assert!(clock::now() < end, "{:?}", driver.nodes());
        driver.drive();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A driver for a name that no name server knows, and these addresses for it.
fn driver_of(addresses: Vec<SocketAddr>) -> Driver {
    // Names below this domain have no address by its definition (RFC 6761).
    let config = Config::new(["redis://locks.invalid:6379"]).expect("an address");
    let config = config.connect_timeout(Duration::from_secs(1));
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

/// The first address closes the connection in the TLS handshake. At the second the queue of connections
/// is full, so that no connection is made.
#[cfg(feature = "tls")]
#[test]
fn the_end_of_the_time_at_an_address_has_nothing_of_the_handshake_at_the_one_before() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let first = listener.local_addr().expect("its address");
    let ((hears, heard), (closes, closed)) = (channel(), channel::<()>());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = hears.send(stream.read(&mut [0; 4096]).is_ok());
        let _ = closed.recv();
    });
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    full.listen(0).expect("a listener");
    let second = full.local_addr().expect("its address").as_socket().expect("an IP address");
    let _waiting = TcpStream::connect(second).expect("the one that it takes");
    let authority = redbolt_rig::Authority::new();
    let config = Config::new(["rediss://locks.invalid:6379"]).expect("an address");
    let config = config.tls(crate::tls::Tls::new().ca(authority.pem()));
    let mut driver =
        Driver::standalone(config.connect_timeout(Duration::from_millis(300))).expect("a poll");
    driver.links.first_mut().expect("a node").set_addresses(vec![first, second]);
    until(&mut driver, |_| heard.try_recv() == Ok(true));
    drop(closes);
    let is_over = |driver: &mut Driver| {
        let cause = driver.nodes()[0].cause;
        assert_ne!(cause, Cause::TlsTimeout);
        cause == Cause::ConnectTimeout
    };
    until(&mut driver, is_over);
}

#[test]
fn a_name_none_of_whose_addresses_serves_is_asked_for_again() {
    let mut driver = driver_of(vec![closed(), closed()]);
    until(&mut driver, |driver| driver.nodes()[0].cause == Cause::ConnectionRefused);
    until(&mut driver, |driver| driver.nodes()[0].cause == Cause::NameUnknown);
}

/// A server that answers each request of each connection with `text`.
fn says(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().take(20).flatten() {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut bytes = [0; 4096];
                while matches!(stream.read(&mut bytes), Ok(1..)) {
                    let _ = stream.write_all(text.as_bytes());
                }
            });
        }
    });
    address
}

#[test]
fn an_address_that_accepts_and_does_not_serve_is_left_for_the_next() {
    for text in ["", "-NOAUTH Authentication required.\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let next = listener.local_addr().expect("its address");
        let mut driver = driver_of(vec![says(text), next]);
        until(&mut driver, |_| listener.accept().is_ok());
    }
}

#[test]
fn a_name_whose_only_address_does_not_serve_is_asked_for_again() {
    for text in ["", "-NOAUTH Authentication required.\r\n"] {
        let mut driver = driver_of(vec![says(text)]);
        until(&mut driver, |driver| driver.nodes()[0].cause == Cause::NameUnknown);
    }
}

#[test]
fn an_address_that_cannot_be_reached_at_all_is_left_for_the_next() {
    // The kernel refuses a connection to the broadcast address before anything is sent.
    let nowhere = SocketAddr::from(([255, 255, 255, 255], 1));
    assert!(TcpStream::connect(nowhere).is_err());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let node = listener.local_addr().expect("its address");
    let mut driver = driver_of(vec![nowhere, nowhere, node]);
    until(&mut driver, |driver| {
        assert_ne!(driver.nodes()[0].cause, Cause::Network, "it was lost in between");
        driver.nodes()[0].state == NodeState::Greeting
    });
    let mut driver = driver_of(vec![nowhere]);
    until(&mut driver, |driver| driver.nodes()[0].cause == Cause::NameUnknown);
}

/// A master that answers one greeting, and closes the connection at the next request. It counts the
/// connections made to it.
fn greets_once() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    std::thread::spawn(move || {
        let hello = "%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n";
        let info = "run_id:a\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n";
        let greeting = format!("{hello}{}", format!("${}\r\n{info}\r\n", info.len()).repeat(4));
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            if counting.fetch_add(1, Ordering::SeqCst) == 0
                && matches!(stream.read(&mut bytes), Ok(1..))
                && stream.write_all(greeting.as_bytes()).is_ok()
            {
                let _ = stream.read(&mut bytes);
            }
        }
    });
    (address, count)
}

#[test]
fn the_address_that_served_last_is_tried_first() {
    let ((node, _), other) = (greets_once(), closed());
    let mut driver = driver_of(vec![other, node]);
    until(&mut driver, |driver| driver.nodes()[0].cause == Cause::NameUnknown);
    for found in [vec![other, node], vec![node, other]] {
        driver.links[0].set_addresses(found);
        assert_eq!(driver.links[0].next_address(), Some(node));
    }
    driver.links[0].set_addresses(vec![other]);
    assert_eq!(driver.links[0].next_address(), Some(other));
}

/// The name may lead to a new master, while the old one still accepts connections.
#[test]
fn a_name_is_looked_up_for_each_connection_also_after_its_address_has_served() {
    let (node, connections) = greets_once();
    let mut driver = driver_of(vec![node]);
    until(&mut driver, |driver| driver.nodes()[0].cause == Cause::NameUnknown);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
