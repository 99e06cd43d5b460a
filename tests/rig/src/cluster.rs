//! [`Cluster`]: the nodes of one client, each a real server of its own.

use std::thread;

use crate::kind::{Kind, kind_or_skip};
use crate::server::RealServer;

/// Real servers that are the nodes of one client.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<RealServer>,
}

impl Cluster {
    /// One server for each of `kinds`, started side by side; `None` if one of them is not
    /// installed.
    pub fn start(kinds: &[Kind], args: &[&str]) -> Option<Self> {
        for &kind in kinds {
            kind_or_skip(kind)?;
        }
        let servers = thread::scope(|scope| {
            let start = |&kind| scope.spawn(move || RealServer::start(kind, args));
            let starting: Vec<_> = kinds.iter().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
            starting.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        });
        Some(Self { servers: servers.expect("every server starts") })
    }

    /// `count` servers of all kinds in turn.
    pub fn mixed(count: usize) -> Option<Self> {
        // The newest kinds come first, so that the smallest clusters have both native dialects.
        let order = [Kind::Valkey91, Kind::Redis86, Kind::Redis70, Kind::Valkey81, Kind::Redis80];
        let kinds: Vec<_> = order.into_iter().cycle().take(count).collect();
        Self::start(&kinds, &[])
    }

    pub fn len(&self) -> usize {
        self.servers.len()
    }

    #[track_caller]
    pub fn node(&self, index: usize) -> &RealServer {
        self.servers.get(index).expect("a node of that number")
    }

    #[track_caller]
    pub fn node_mut(&mut self, index: usize) -> &mut RealServer {
        self.servers.get_mut(index).expect("a node of that number")
    }

    pub fn nodes(&self) -> impl Iterator<Item = &RealServer> {
        self.servers.iter()
    }

    /// Starts new processes for these nodes, side by side: [`RealServer::restart`].
    pub fn restart(&mut self, indices: &[usize]) {
        thread::scope(|scope| {
            for (index, server) in self.servers.iter_mut().enumerate() {
                if indices.contains(&index) {
                    scope.spawn(|| server.restart());
                }
            }
        });
    }

    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RealServer::url).collect()
    }

    /// The value that each node has for a key.
    pub fn values(&self, key: &str) -> Vec<Option<Vec<u8>>> {
        self.servers.iter().map(|server| server.get(key)).collect()
    }

    /// How many nodes have a key, whichever client wrote it.
    pub fn holders(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| server.exists(key)).count()
    }

    /// Writes a key of a foreign client on one node.
    pub fn occupy(&self, index: usize, key: &str) {
        let reply = self.node(index).command(&["SET", key, FOREIGN, "PX", "60000"]);
        assert_eq!(reply, b"+OK\r\n");
    }

    /// How often all nodes ran a command.
    pub fn calls(&self, command: &str) -> u64 {
        self.servers.iter().map(|server| server.calls(command)).sum()
    }

    /// How often a node ran SET.
    pub fn set_count(&self, index: usize) -> u64 {
        self.node(index).calls("set")
    }
}

/// The value that [`Cluster::occupy`] writes.
pub const FOREIGN: &str = "somebody-else";
