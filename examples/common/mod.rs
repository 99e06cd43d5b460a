//! The nodes for the examples.

use redbolt_embedded::Nodes;

/// Addresses of nodes, and the nodes themselves if they run in this process.
pub(crate) struct Found {
    pub(crate) urls: Vec<String>,
    _nodes: Option<Nodes>,
}

/// The nodes of `REDBOLT_NODES`, or five in this process.
pub(crate) fn nodes() -> Result<Found, Box<dyn std::error::Error>> {
    if let Ok(list) = std::env::var("REDBOLT_NODES") {
        return Ok(Found { urls: list.split(',').map(str::to_owned).collect(), _nodes: None });
    }
    let nodes = Nodes::start(5)?;
    Ok(Found { urls: nodes.urls(), _nodes: Some(nodes) })
}
