//! Questions to the nodes: commands of the caller, and what each node answers.

use redbolt::inspect::{NodeAnswers, NodeId, Query, Reply};
use redbolt::{Cause, Client, LockError};

use super::common::{Clients as _, Cluster, TTL, ends_within, ms};

fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

#[test]
fn every_handle_puts_to_each_node_what_is_meant_for_it_and_returns_the_replies_in_order() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let config = || cluster.config().node_timeout(ms(2_000));
    let client = cluster.whole(config());
    let shared = Client::connect(config()).unwrap();
    let asked = NodeId::new(1).unwrap();
    let query = Query::new()
        .all(&[b"ECHO", b"a\r\n"])
        .only(asked, &[b"ECHO", b"b"])
        .all(&[b"NO-SUCH-COMMAND"]);
    let seen = [
        client.query(&query).wait().unwrap(),
        shared.query(&query).wait().unwrap(),
        smol::block_on(shared.query(&query)).unwrap(),
    ];
    let odd = Reply::Error(Cause::Unsupported);
    for nodes in seen {
        let replies: Vec<_> = nodes.iter().map(|node| node.replies.clone()).collect();
        let (one, two) =
            (vec![text("a\r\n"), odd.clone()], vec![text("a\r\n"), text("b"), odd.clone()]);
        assert_eq!(replies, [one.clone(), two, one]);
        let is_well = |node: &NodeAnswers| (node.cause, node.doubt) == (Cause::None, Cause::None);
        assert!(nodes.iter().all(is_well), "{nodes:?}");
    }
    let long = (0..256).fold(Query::new(), |query, _| query.all(&[b"TIME"]));
    assert!(matches!(client.query(&long).wait(), Err(LockError::Full)));
    assert!(matches!(shared.query(&long).wait(), Err(LockError::Full)));
}

#[test]
fn a_node_that_hangs_owes_its_replies_after_a_node_timeout() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.whole(cluster.config().node_timeout(ms(1_000)));
    cluster.node(2).freeze();
    let query = Query::new().all(&[b"GET", b"k"]);
    let nodes = ends_within(ms(3_000), || client.query(&query).wait()).unwrap();
    cluster.node(2).thaw();
    let causes: Vec<bool> = nodes.iter().map(|node| node.cause == Cause::None).collect();
    assert_eq!(causes, [true, true, false], "{nodes:?}");
    assert!(nodes[2].replies.is_empty());
}

/// A list of clients takes up to a kilobyte for each.
#[test]
fn a_reply_of_some_megabytes_is_read_and_breaks_no_connection() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.whole(cluster.config().node_timeout(ms(5_000)));
    let lease = client.try_lock("k", TTL).wait().unwrap();
    let before: Vec<_> = client.nodes().wait().into_iter().map(|node| node.until).collect();
    let name = "x".repeat(2_000);
    let _crowd: Vec<_> = (0..800)
        .map(|_| {
            let mut wire = cluster.node(0).connect();
            assert_eq!(wire.ask(&["CLIENT", "SETNAME", &name]).unwrap(), b"+OK\r\n");
            wire
        })
        .collect();
    let query = Query::new().only(NodeId::new(0).unwrap(), &[b"CLIENT", b"LIST"]);
    let nodes = client.query(&query).wait().unwrap();
    assert!(nodes[0].replies[0].text().unwrap().len() > 1 << 20, "{nodes:?}");
    let after: Vec<_> = client.nodes().wait().into_iter().map(|node| node.until).collect();
    assert_eq!(before, after);
    assert_eq!(client.voters().count(), 3);
    assert!(lease.is_valid());
}
