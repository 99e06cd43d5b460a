//! The state of nodes, and questions to them: for people, dashboards and readiness checks. No lock
//! depends on any of it.
//!
//! [`Client::nodes`](crate::Client::nodes) and similar calls give the state of each node without
//! asking it. [`Client::leader`](crate::Client::leader) asks which client leads, or holds any lock.
//! [`Client::query`](crate::Client::query) sends read-only commands to the nodes. `redbolt status`,
//! `ls` and `doctor` use these calls.

pub use crate::address::{Address, Endpoint};
pub use crate::agreement::{Agreement, NodeList};
pub use crate::client_name::{ClientId, ClientName};
pub use crate::engine::event::Notice;
pub use crate::engine::locks::view::{NodeHealth, NodeState};
pub use crate::leader::{Leader, Led};
pub use crate::plain::shown;
pub use crate::query::{NodeAnswers, Query, Reply};
pub use crate::quorum::{NodeId, NodeMask, NodeMaskIter};
