//! [`Node`]: the thread of one embedded node, an event loop around the model.
//!
//! Layer: above the sans-IO line. [`super::Nodes`] starts it and sends it [`Order`]s.
//!
//! # Contract
//!
//! - An order has taken effect when its answer arrives.
//! - While paused the node reads, runs and writes nothing. Bytes that arrive stay in the sockets
//!   and run on resume, even if their client has gone since.

use std::io::{self, ErrorKind, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use rand::TryRng as _;
use rand::rngs::SysRng;

use super::clock;
use super::connection::{Connection, Fate};
use super::port::{self, Port};
use crate::model::{Condition, Life, Memory, Server, ServerOptions};

/// The state of a node.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// The node answers.
    Running,
    /// The node hangs, like a process under SIGSTOP: the system accepts connections, but the node
    /// answers nothing.
    Paused,
    /// The node's process is gone: the system refuses connections.
    Killed,
}

/// The report of a node's thread with every answer.
pub(super) struct Report {
    pub(super) state: NodeState,
    pub(super) key_count: usize,
    pub(super) uptime: Duration,
}

/// An order to a node's thread.
pub(super) enum Order {
    Pause,
    Resume,
    HangUp,
    Kill,
    Restart(Memory),
    Condition(Condition),
    Look,
    Stop,
}

/// An order, and the sender for its answer.
pub(super) type Letter = (Order, SyncSender<io::Result<Report>>);

/// One node: sockets, model, state.
pub(super) struct Node {
    poll: Poll,
    listener: Option<TcpListener>,
    port: Port,
    clients_max: usize,
    server: Server,
    state: NodeState,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections that may have something to read or room to write.
    todo: Vec<usize>,
    /// Connections that may have something to write.
    unwritten: Vec<usize>,
    to_accept: bool,
    scratch: Vec<u8>,
}

impl Node {
    /// A node that listens on `port`, and reports a start `age` ago.
    pub(super) fn new(
        port: Port,
        options: &ServerOptions,
        clients_max: usize,
        age: Duration,
    ) -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let server = Server::new(options, life(port.number, age)?);
        let mut node = Self {
            poll,
            listener: None,
            port,
            clients_max,
            server,
            state: NodeState::Running,
            connections: Vec::new(),
            free: Vec::new(),
            todo: Vec::new(),
            unwritten: Vec::new(),
            to_accept: false,
            scratch: vec![0; READ_LEN],
        };
        node.listen()?;
        Ok((node, waker))
    }

    /// Runs until an order stops it or the sender of orders is gone.
    pub(super) fn run(mut self, orders: &Receiver<Letter>) {
        let mut events = Events::with_capacity(256);
        loop {
            let busy = self.state == NodeState::Running && !self.todo.is_empty();
            match self.poll.poll(&mut events, busy.then_some(Duration::ZERO)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            }
            for event in &events {
                self.note(event);
            }
            while let Ok((order, answer)) = orders.try_recv() {
                let stop = matches!(order, Order::Stop);
                let done = self.obey(order);
                let report = done.map(|()| self.report());
                // A caller that could not wake this thread does not wait; the order still holds.
                let _ = answer.send(report);
                if stop {
                    return;
                }
            }
            if self.state == NodeState::Running {
                self.pass();
            }
        }
    }

    /// Notes an event; the node acts on it only while it runs.
    fn note(&mut self, event: &Event) {
        match event.token() {
            WAKER => {}
            LISTENER => self.to_accept = true,
            Token(index) => {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    connection.readable |= event.is_readable() || event.is_error();
                    connection.read_closed |= event.is_read_closed() || event.is_error();
                    if !connection.listed {
                        connection.listed = true;
                        self.todo.push(index);
                    }
                }
            }
        }
    }

    fn obey(&mut self, order: Order) -> io::Result<()> {
        match (order, self.state) {
            (Order::Pause, NodeState::Running) => self.state = NodeState::Paused,
            (Order::Resume, NodeState::Paused) => self.state = NodeState::Running,
            (Order::HangUp, _) => self.hang_up(),
            (Order::Kill | Order::Stop, _) => self.kill(),
            (Order::Restart(memory), _) => self.restart(memory)?,
            (Order::Condition(condition), _) => self.server.set_condition(condition),
            (Order::Look, _)
            | (Order::Pause, NodeState::Paused | NodeState::Killed)
            | (Order::Resume, NodeState::Running | NodeState::Killed) => {}
        }
        Ok(())
    }

    fn report(&mut self) -> Report {
        let now = clock::now();
        Report {
            state: self.state,
            key_count: self.server.key_count(now),
            uptime: self.server.uptime(now),
        }
    }

    fn kill(&mut self) {
        self.state = NodeState::Killed;
        if let Some(listener) = self.listener.take() {
            port::close(&listener);
        }
        self.hang_up();
    }

    fn hang_up(&mut self) {
        self.todo.clear();
        self.unwritten.clear();
        self.free.clear();
        for connection in self.connections.drain(..).flatten() {
            self.server.disconnect(connection.into_session());
        }
    }

    fn restart(&mut self, memory: Memory) -> io::Result<()> {
        self.kill();
        self.server.restart(life(self.port.number, Duration::ZERO)?, memory);
        self.listen()?;
        self.state = NodeState::Running;
        Ok(())
    }

    fn listen(&mut self) -> io::Result<()> {
        let mut listener = self.port.listen()?;
        self.poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        self.to_accept = true;
        Ok(())
    }

    /// Accepts all waiting connections and serves all ready ones, once.
    fn pass(&mut self) {
        if std::mem::take(&mut self.to_accept) {
            while let Some(Ok((stream, _))) = self.listener.as_ref().map(TcpListener::accept) {
                self.admit(stream);
            }
        }
        let served = std::mem::take(&mut self.todo);
        for &index in &served {
            let Some(Some(connection)) = self.connections.get_mut(index) else {
                continue;
            };
            connection.listed = false;
            let fate = connection.read(&mut self.server, &mut self.scratch);
            self.settle(index, fate);
            self.append_deliveries();
        }
        self.unwritten.extend(served);
        // As on a real server, all writes of a pass come after its reads. A write to a client that
        // has gone ends its connection, but the bytes that the client sent before must still run.
        while let Some(index) = self.unwritten.pop() {
            if let Some(Some(connection)) = self.connections.get_mut(index) {
                let fate = connection.write();
                self.settle(index, fate);
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream) {
        if self.connections.len() - self.free.len() >= self.clients_max {
            let _ = stream.write(b"-ERR max number of clients reached\r\n");
            return;
        }
        let index = self.free.pop().unwrap_or(self.connections.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut stream, Token(index), interest);
        if stream.set_nodelay(true).and(registered).is_err() {
            if index < self.connections.len() {
                self.free.push(index);
            }
            return;
        }
        let connection = Connection::new(stream, self.server.connect());
        match self.connections.get_mut(index) {
            Some(slot) => *slot = Some(connection),
            None => self.connections.push(Some(connection)),
        }
    }

    fn settle(&mut self, index: usize, fate: Fate) {
        let Some(slot) = self.connections.get_mut(index) else {
            return;
        };
        match fate {
            Fate::Waits => {}
            Fate::Again => {
                if let Some(connection) = slot {
                    connection.listed = true;
                    self.todo.push(index);
                }
            }
            Fate::Over => {
                if let Some(connection) = slot.take() {
                    self.server.disconnect(connection.into_session());
                    self.free.push(index);
                }
            }
        }
    }

    fn append_deliveries(&mut self) {
        for delivery in self.server.deliveries() {
            let subscriber = self.connections.iter_mut().enumerate().find_map(|(index, slot)| {
                let connection = slot.as_mut()?;
                (connection.session_id() == delivery.session).then_some((index, connection))
            });
            if let Some((index, connection)) = subscriber {
                connection.append(&delivery.bytes);
                self.unwritten.push(index);
            }
        }
    }
}

/// A new process life, with its own identities.
fn life(port: u16, age: Duration) -> io::Result<Life> {
    let mut ids = [[0; 20]; 2];
    for id in &mut ids {
        SysRng.try_fill_bytes(id).map_err(io::Error::other)?;
    }
    let [run_id, replid] = ids;
    Ok(Life::new(run_id, replid, clock::now(), clock::wall_ms()).age(age).port(port))
}

const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
/// How much a real server reads at a time.
const READ_LEN: usize = 16 << 10;
