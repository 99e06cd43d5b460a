//! Other lists of nodes while the driver runs.

use std::sync::Arc;

use super::clock;
use super::core::Driver;
use super::link::links_of;
use crate::config::Config;
use crate::error::ConfigError;
use crate::quorum::Electorate;

impl Driver {
    /// Changes the lists of nodes to those of `lists`, by the rules of
    /// [`Client::set_nodes`](crate::Client::set_nodes). The driver connects to the new nodes in its
    /// next passes. A change costs no round trip, but a look at each lease.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoCommonList`] unless the present lists and the new ones have one in common.
    /// [`ConfigError::TooManyNodes`] for more than 32 nodes, those of earlier lists included.
    /// [`ConfigError::TokenRange`] if the driver has too few tokens for the new nodes.
    pub fn set_nodes(&mut self, lists: &Config) -> Result<(), ConfigError> {
        let config = self.engine.config().with_lists_of(lists)?;
        let needed = config.nodes.len() + 1;
        if self.tokens.len() < needed {
            return Err(ConfigError::TokenRange { given: self.tokens.len(), needed });
        }
        let links = links_of(&config)?;
        self.engine.set_nodes(lists, clock::now())?;
        self.links.extend(links.into_iter().skip(self.links.len()));
        Ok(())
    }

    /// The names of all nodes and the lists that decide, if they have changed since the last call.
    pub(crate) fn take_lists(&mut self) -> Option<(Arc<[Box<str>]>, Electorate)> {
        self.engine.take_lists()
    }

    /// Whether lists of nodes are to come that do not decide yet.
    #[must_use]
    pub const fn is_exchanging(&self) -> bool {
        self.engine.is_exchanging()
    }
}
