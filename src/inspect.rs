//! The state of nodes, for people, dashboards and readiness checks. No lock depends on any of it.
//!
//! [`Client::nodes`](crate::Client::nodes) and similar calls give the state of each node without
//! asking it, and [`Client::status`](crate::Client::status) asks what each node holds for a key,
//! [`Client::holder`](crate::Client::holder) who holds it, [`Client::leader`](crate::Client::leader) who
//! leads, and
//! [`Client::locks`](crate::Client::locks) lists locks with their holders.
//! Only checks of the set-up need [`examine`], [`permissions`] and [`clients`]; `redbolt doctor` calls them.

pub use crate::address::{Address, Endpoint};
pub use crate::agreement::Agreement;
pub use crate::client::{Clients, NodePermissions, NodeReport, clients, examine, permissions};
pub use crate::client_name::ClientId;
pub use crate::engine::locks::view::{NodeHealth, NodeState};
pub use crate::engine::notice::Notice;
pub use crate::plain::shown;
pub use crate::quorum::{NodeId, NodeMask, NodeMaskIter};
pub use crate::status::{
    Holder, KeyState, Listing, NodeKey, Searched, SeenClient, SeenLock, Unlisted, Verdict,
};
