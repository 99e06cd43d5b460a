//! Turns host names into addresses, on short-lived threads: the loop never waits for a name server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

/// The addresses of the node with this index; empty if the name has none.
pub(super) type Resolved = (usize, Vec<SocketAddr>);

/// Looks names up, and wakes the loop when an answer has come.
pub(super) struct Resolver {
    wake: UnixStream,
    waker: StdUnixStream,
    sender: Sender<Resolved>,
    receiver: Receiver<Resolved>,
}

impl Resolver {
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let (ours, waker) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let mut wake = UnixStream::from_std(ours);
        registry.register(&mut wake, token, Interest::READABLE)?;
        let (sender, receiver) = channel();
        Ok(Self { wake, waker, sender, receiver })
    }

    /// Looks `host` up for the node `index`.
    pub(super) fn ask(&self, index: usize, host: &str, port: u16) -> io::Result<()> {
        let host = host.to_owned();
        let sender = self.sender.clone();
        let mut waker = self.waker.try_clone()?;
        thread::Builder::new().name("redbolt-resolve".into()).spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let addresses = found.map_or_else(|_| Vec::new(), Iterator::collect);
            if sender.send((index, addresses)).is_ok() {
                // A full socket has woken the loop already; a closed one has no loop.
                let _ = waker.write(&[0]);
            }
        })?;
        Ok(())
    }

    /// Readable when an answer has come.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The next answer.
    pub(super) fn next(&mut self) -> Option<Resolved> {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
        self.receiver.try_recv().ok()
    }
}
