//! What can be seen of nodes: for people, dashboards and readiness checks. No lock rests on any of it.
//!
//! [`Client::nodes`](crate::Client::nodes) and its like say how each node is without asking it, and
//! [`Client::status`](crate::Client::status) asks what each holds for a key. What only a check of the
//! set-up wants to know stands here: [`examine`] and [`permissions`], which `redbolt doctor` calls.

pub use crate::address::{Address, Endpoint};
pub use crate::client::{NodePermissions, NodeReport, examine, permissions};
pub use crate::engine::locks::view::{NodeHealth, NodeState};
pub use crate::engine::notice::Notice;
pub use crate::quorum::{NodeId, NodeMask, NodeMaskIter};
pub use crate::status::{KeyState, NodeKey};
