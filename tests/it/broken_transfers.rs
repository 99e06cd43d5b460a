//! Scripts that look as if they handed a lock over. For each, a run of a few steps on real servers
//! of every version tells a waiter of a lock that it does not have.
//! The node has not taken that lock from its holder for the waiter. With the client's own script,
//! the same steps send no message.

use redbolt_rig::{RealServer, Wire};

use super::common::{Cluster, Kind, on_each_kind};
use super::transfers::take_turns;

/// The client's own script, as [`the_script_is_the_one_that_clients_send`] shows.
const TRANSFER: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
    redis.call('del',KEYS[1]) local s=redis.pcall('set',KEYS[1],ARGV[2],'PX',ARGV[3]) \
    if type(s)=='table' and s.ok then local n=redis.pcall('publish',ARGV[4],ARGV[5]) \
    if type(n)=='number' and n>0 then return 2 end redis.call('del',KEYS[1]) end return 1";

/// One node, at which a waiter listens.
struct Node {
    server: RealServer,
    waiter: Wire,
}

impl Node {
    fn start(kind: Kind) -> Self {
        let server = RealServer::start(kind, &[]);
        let mut waiter = server.connect();
        waiter.ask(&["SUBSCRIBE", "waiter"]).expect("the server answers");
        Self { server, waiter }
    }

    fn set(&self, token: &str) {
        assert_eq!(self.server.command(&["SET", "k", token, "PX", "60000"]), b"+OK\r\n");
    }

    /// Runs the script of a holder. Returns whether the waiter got a message.
    fn hand_over(&mut self, script: &str) -> bool {
        let command = ["EVAL", script, "1", "k", "holder's", "waiter's", "60000", "waiter", "m"];
        let answer = self.server.command(&command);
        assert_eq!(answer.first(), Some(&b':'), "{}", String::from_utf8_lossy(&answer));
        // A message would come before the answer to PING.
        let mut said = self.waiter.ask(&["PING"]).expect("the server answers");
        let is_told = String::from_utf8_lossy(&said).contains("message");
        if is_told {
            said = self.waiter.reply().expect("the server answers");
        }
        assert!(String::from_utf8_lossy(&said).contains("pong"));
        is_told
    }

    /// The token that the key holds.
    fn holds(&self) -> String {
        let reply = self.server.command(&["GET", "k"]);
        String::from_utf8_lossy(&reply).lines().nth(1).unwrap_or_default().to_owned()
    }
}

#[test]
fn the_script_is_the_one_that_clients_send() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    take_turns(&cluster, |_| {});
    let loaded = RealServer::start(Kind::Valkey91, &[]).command(&["SCRIPT", "LOAD", TRANSFER]);
    let loaded = String::from_utf8(loaded).expect("text");
    let sha1 = loaded.lines().nth(1).expect("a bulk string");
    assert_eq!(cluster.node(0).command(&["SCRIPT", "EXISTS", sha1]), b"*1\r\n:1\r\n");
}

#[test]
fn a_lock_is_handed_over_and_its_waiter_told() {
    on_each_kind(|kind| {
        let mut node = Node::start(kind);
        node.set("holder's");
        assert!(node.hand_over(TRANSFER));
        assert_eq!(node.holds(), "waiter's");
    });
}

/// The user may not run SET: the waiter counts the vote of a node that has no key for it.
#[test]
fn a_script_that_tells_before_it_writes_tells_of_a_key_that_is_gone() {
    const TELLS_FIRST: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
        redis.call('del',KEYS[1]) local n=redis.pcall('publish',ARGV[4],ARGV[5]) \
        local s=redis.pcall('set',KEYS[1],ARGV[2],'PX',ARGV[3]) \
        if type(s)=='table' and s.ok then \
        if type(n)=='number' and n>0 then return 2 end redis.call('del',KEYS[1]) end return 1";
    on_each_kind(|kind| {
        for (script, is_told) in [(TELLS_FIRST, true), (TRANSFER, false)] {
            let mut node = Node::start(kind);
            node.set("holder's");
            assert_eq!(node.server.command(&["ACL", "SETUSER", "default", "-set"]), b"+OK\r\n");
            assert_eq!(node.hand_over(script), is_told, "{}", kind.name());
            assert_eq!(node.holds(), "", "{}", kind.name());
        }
    });
}

/// The holder's lease is over, and another client has the lock.
#[test]
fn a_script_that_tells_whoever_holds_the_key_gives_two_clients_one_lock() {
    const TELLS_ALWAYS: &str = "if redis.call('get',KEYS[1])==ARGV[1] then \
        redis.call('set',KEYS[1],ARGV[2],'PX',ARGV[3]) end \
        if redis.call('publish',ARGV[4],ARGV[5])>0 then return 2 end return 1";
    on_each_kind(|kind| {
        for (script, is_told) in [(TELLS_ALWAYS, true), (TRANSFER, false)] {
            let mut node = Node::start(kind);
            node.set("another's");
            assert_eq!(node.hand_over(script), is_told, "{}", kind.name());
            assert_eq!(node.holds(), "another's", "{}", kind.name());
        }
    });
}

/// The node stood still with the script unread, until the holder's key was gone and the waiter had
/// deleted its own. A key that is written now has no owner.
#[test]
fn a_script_that_writes_where_the_key_is_free_gives_away_what_its_holder_has_lost() {
    let writes_free = TRANSFER.replace(
        "if redis.call('get',KEYS[1])~=ARGV[1] then",
        "local t=redis.call('get',KEYS[1]) if t and t~=ARGV[1] then",
    );
    on_each_kind(|kind| {
        for (script, is_told, left) in [(&writes_free[..], true, "waiter's"), (TRANSFER, false, "")]
        {
            let mut node = Node::start(kind);
            assert_eq!(node.hand_over(script), is_told, "{}", kind.name());
            assert_eq!(node.holds(), left, "{}", kind.name());
        }
    });
}
