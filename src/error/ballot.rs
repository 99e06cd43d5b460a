//! [`Ballot`]: what each node said to an attempt that failed.
//!
//! Layer: bottom, plain values. Made without an allocation: masks, one byte per node, shared names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::cause::Cause;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};

/// One node's part in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vote {
    /// The node wrote the key.
    Granted,
    /// The node holds the key for another client.
    Denied,
    /// The node wrote nothing, for this cause.
    Failed(Cause),
    /// The key may have been written: no clear answer came in time.
    Unknown(Cause),
}

/// Each node's vote in an attempt that failed.
#[derive(Clone)]
pub struct Ballot {
    pub(crate) granted: NodeMask,
    pub(crate) denied: NodeMask,
    pub(crate) unknown: NodeMask,
    pub(crate) causes: [Cause; NODES_MAX],
    pub(crate) names: Arc<[Box<str>]>,
    /// The nodes whose votes count: others have a name, and are in no list.
    pub(crate) listed: NodeMask,
    pub(crate) quorum: u32,
    /// A quorum of each of two lists was needed.
    pub(crate) is_joint: bool,
    /// How long quarantines still keep a quorum from voting, in milliseconds; 0 if they do not.
    pub(crate) quarantine_ms: u32,
    /// The key that the nodes voted on, if the call was for several keys.
    pub(crate) key: Option<Arc<[u8]>>,
}

impl Ballot {
    /// The votes of the listed nodes in their order, each with the node's name.
    pub fn votes(&self) -> impl Iterator<Item = (&str, Vote)> {
        let nodes = (0..).map_while(NodeId::new).zip(&*self.names).zip(self.causes);
        let listed = nodes.filter(|((node, _), _)| self.listed.contains(*node));
        listed.map(|((node, name), cause)| {
            let vote = if self.granted.contains(node) {
                Vote::Granted
            } else if self.denied.contains(node) {
                Vote::Denied
            } else if self.unknown.contains(node) {
                Vote::Unknown(cause)
            } else {
                Vote::Failed(cause)
            };
            (&**name, vote)
        })
    }

    /// The key that was voted on, if the call was for several keys. `None` also if nodes denied all
    /// keys by one command: they do not say which is held.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// How many nodes granted.
    #[must_use]
    pub const fn granted(&self) -> u32 {
        self.granted.count()
    }

    /// How many nodes hold the key for another client.
    #[must_use]
    pub const fn denied(&self) -> u32 {
        self.denied.count()
    }

    /// How many votes were needed. With [two lists](crate::Config::next_nodes), more may be needed.
    #[must_use]
    pub const fn quorum(&self) -> u32 {
        self.quorum
    }

    /// The votes that were needed, for people: `3 needed`, or `a quorum of each list needed`.
    #[must_use]
    pub fn needed(&self) -> String {
        if self.is_joint {
            "a quorum of each list needed".to_owned()
        } else {
            format!("{} needed", self.quorum)
        }
    }

    /// How long until enough restarted nodes may vote, if nothing else is missing.
    #[must_use]
    pub fn quarantine(&self) -> Option<Duration> {
        (self.quarantine_ms > 0).then(|| Duration::from_millis(self.quarantine_ms.into()))
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = self.key() {
            write!(f, "{}: ", key.escape_ascii())?;
        }
        write!(f, "{} of {} granted, {}", self.granted(), self.listed.count(), self.needed())?;
        let mut mark = "; ";
        for (name, vote) in self.votes() {
            let cause = match vote {
                Vote::Granted => continue,
                Vote::Denied => Cause::Held,
                // The others had decided before this node answered.
                Vote::Unknown(Cause::None) => continue,
                Vote::Failed(cause) | Vote::Unknown(cause) => cause,
            };
            write!(f, "{mark}{name}: {cause}")?;
            mark = ", ";
        }
        if let Some(wait) = self.quarantine() {
            write!(f, "; enough nodes may vote in {:.1} s", wait.as_secs_f64())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.votes()).finish()
    }
}
