//! [`clients`]: which clients of Redbolt the nodes list, and what each says of its settings.

use super::Client;
use crate::agreement::Agreement;
use crate::driver::Question;
use crate::error::LockError;
use crate::status::{Listed, SeenClient, Unlisted, has_listed, may_list};

/// The other clients of the nodes of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Clients {
    /// The client's own settings.
    pub own: Agreement,
    /// The other clients of Redbolt that any node lists, each once.
    pub others: Vec<SeenClient>,
    /// In the order of the configuration: a node, and why it has not listed its clients, if it has
    /// not.
    pub nodes: Vec<(String, Option<Unlisted>)>,
}

/// Asks the nodes for the clients of Redbolt that are connected to them (CLIENT LIST), one node after
/// the other: the list of 1,000 clients takes a node about 5 ms, in which it serves nobody else. A
/// node with more than 16,000 connections is not asked. Takes a round trip to each node and one more,
/// or a `node_timeout` where a node does not answer.
///
/// # Errors
///
/// [`LockError::Full`] and [`LockError::System`].
pub fn clients(client: &mut Client) -> Result<Clients, LockError> {
    let (id, own) = client.driver.engine().says();
    let counts = client.put(&Question::ClientCounts)?;
    let mut listed = Listed::default();
    let mut nodes = Vec::new();
    for (node, counts) in counts.nodes.iter().zip(&counts.replies) {
        let has = match may_list(counts, 0) {
            Err(why) => Err(why),
            Ok(()) => {
                let answers = client.put(&Question::Clients(counts.node))?;
                listed.add(&answers);
                answers.replies.iter().find(|it| it.node == counts.node).map_or(Ok(()), has_listed)
            }
        };
        nodes.push((node.name.clone(), has.err()));
    }
    Ok(Clients { own, others: listed.others(id), nodes })
}
