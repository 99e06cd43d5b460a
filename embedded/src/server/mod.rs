//! [`Nodes`]: embedded nodes behind real TCP ports. Tests pause, kill and restart them at will.
//!
//! Layer: above the sans-IO line. Each node has one thread with its own poll (`node`); this file
//! talks to the threads.

mod clock;
mod connection;
mod error;
mod node;
mod options;
mod port;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Waker;

pub use self::error::NodesError;
pub use self::node::NodeState;
use self::node::{Letter, Node, Order, Report};
pub use self::options::NodesOptions;
use super::model::Condition;
pub use super::model::Memory;

/// Embedded nodes on ports of 127.0.0.1, each an independent master.
///
/// Dropping it ends the nodes and frees the ports.
#[derive(Debug)]
pub struct Nodes {
    handles: Vec<Handle>,
}

#[derive(Debug)]
struct Handle {
    port: u16,
    orders: Sender<Letter>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Nodes {
    /// Starts `count` nodes on free ports.
    ///
    /// # Errors
    ///
    /// [`NodesError::Io`] if the system gives no port, thread or event queue. Then no node is left
    /// running.
    pub fn start(count: usize) -> Result<Self, NodesError> {
        Self::start_with(&NodesOptions::new(count))
    }

    /// Starts nodes as `options` say.
    ///
    /// Each node reports that it is an hour old, so that a client's restart guard lets it vote at
    /// once.
    ///
    /// # Errors
    ///
    /// As [`Nodes::start`]; also if a port in `options` is taken.
    pub fn start_with(options: &NodesOptions) -> Result<Self, NodesError> {
        let mut nodes = Self { handles: Vec::new() };
        for node in 0..options.count() {
            let handle = start_one(options, node);
            nodes.handles.push(handle.map_err(|source| NodesError::Io { node, source })?);
        }
        Ok(nodes)
    }

    /// The nodes' addresses, `redis://127.0.0.1:PORT`, in their order.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let ports = self.handles.iter().map(|handle| handle.port);
        ports.map(|port| format!("redis://127.0.0.1:{port}")).collect()
    }

    /// How many nodes there are, whatever their state.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether there is no node at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Makes a node hang, as SIGSTOP does, until [`Nodes::resume`].
    ///
    /// # Errors
    ///
    /// As [`Nodes::state`].
    pub fn pause(&self, node: usize) -> Result<(), NodesError> {
        self.ask(node, Order::Pause).map(drop)
    }

    /// Lets a paused node go on. It now runs the requests that clients sent meanwhile, even if the
    /// client has hung up since.
    ///
    /// # Errors
    ///
    /// As [`Nodes::state`].
    pub fn resume(&self, node: usize) -> Result<(), NodesError> {
        self.ask(node, Order::Resume).map(drop)
    }

    /// Closes every connection of a node, like a network that drops them: bytes that the node has
    /// not read are lost. The node goes on.
    ///
    /// # Errors
    ///
    /// As [`Nodes::state`].
    pub fn hang_up(&self, node: usize) -> Result<(), NodesError> {
        self.ask(node, Order::HangUp).map(drop)
    }

    /// Ends a node's process: its connections close, and its port refuses new ones.
    ///
    /// # Errors
    ///
    /// As [`Nodes::state`].
    pub fn kill(&self, node: usize) -> Result<(), NodesError> {
        self.ask(node, Order::Kill).map(drop)
    }

    /// Kills the process if it still runs, and begins a new process life on the same port. The node
    /// has a new `run_id` and reports its true age from now on.
    ///
    /// # Errors
    ///
    /// The errors of [`Nodes::state`], and [`NodesError::Io`] if the operating system gives no
    /// socket, or another program has taken the port. Then the node stays killed. On Linux the node
    /// keeps its port, so no other program can take it.
    pub fn restart(&self, node: usize, memory: Memory) -> Result<(), NodesError> {
        self.ask(node, Order::Restart(memory)).map(drop)
    }

    /// Puts a node into a condition, or out of it.
    ///
    /// # Errors
    ///
    /// As [`Nodes::state`].
    pub fn set_condition(&self, node: usize, condition: Condition) -> Result<(), NodesError> {
        self.ask(node, Order::Condition(condition)).map(drop)
    }

    /// The state of a node.
    ///
    /// # Errors
    ///
    /// [`NodesError::NoSuchNode`] for a number that is not below [`Nodes::len`],
    /// [`NodesError::Gone`] if the node's thread has ended by itself.
    pub fn state(&self, node: usize) -> Result<NodeState, NodesError> {
        self.ask(node, Order::Look).map(|report| report.state)
    }

    /// How many keys a node holds, whatever its state.
    ///
    /// # Errors
    ///
    /// As [`Nodes::state`].
    pub fn key_count(&self, node: usize) -> Result<usize, NodesError> {
        self.ask(node, Order::Look).map(|report| report.key_count)
    }

    /// The age that a node reports, in whole seconds of its wall clock.
    ///
    /// # Errors
    ///
    /// As [`Nodes::state`].
    pub fn uptime(&self, node: usize) -> Result<Duration, NodesError> {
        self.ask(node, Order::Look).map(|report| report.uptime)
    }

    /// Sends an order and waits until it has taken effect.
    fn ask(&self, node: usize, order: Order) -> Result<Report, NodesError> {
        let count = self.handles.len();
        let handle = self.handles.get(node).ok_or(NodesError::NoSuchNode { node, count })?;
        let report = handle.ask(order).ok_or(NodesError::Gone { node })?;
        report.map_err(|source| NodesError::Io { node, source })
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for handle in &mut self.handles {
            // A thread that has ended needs no order.
            let _ = handle.ask(Order::Stop);
            if let Some(thread) = handle.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Handle {
    /// `None` if the thread has ended.
    fn ask(&self, order: Order) -> Option<io::Result<Report>> {
        let (answer, answers) = sync_channel(1);
        self.orders.send((order, answer)).ok()?;
        self.waker.wake().ok()?;
        answers.recv().ok()
    }
}

fn start_one(options: &NodesOptions, node: usize) -> io::Result<Handle> {
    let port = options.port(node)?;
    let number = port.number;
    let model = options.model(node);
    let (node_loop, waker) = Node::new(port, &model, options.clients_max(), FIRST_AGE)?;
    let (orders, letters) = channel();
    let thread = std::thread::Builder::new().name(format!("redbolt-node-{node}"));
    let thread = thread.spawn(move || node_loop.run(&letters))?;
    Ok(Handle { port: number, orders, waker, thread: Some(thread) })
}

/// The age that a node reports at its first start.
const FIRST_AGE: Duration = Duration::from_secs(3600);
