//! The subscribers of each channel, and the messages that wait for them.

use std::collections::BTreeMap;

use super::session::Session;

/// A message for a session that subscribed to its channel.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// [`Session::id`] of the receiver.
    pub session: u64,
    /// The bytes to send.
    pub bytes: Vec<u8>,
}

/// The subscribers of each channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channels {
    pub(super) subscribers: BTreeMap<Vec<u8>, Vec<Subscriber>>,
    pub(super) deliveries: Vec<Delivery>,
}

#[derive(Clone, Debug)]
pub(crate) struct Subscriber {
    pub(super) session: u64,
    pub(super) resp3: bool,
}

impl Channels {
    /// Ends all subscriptions of a session.
    pub(crate) fn leave(&mut self, session: &mut Session) {
        for channel in session.channels.drain(..) {
            self.remove(&channel, session.id);
        }
    }

    /// A session uses another protocol from now on.
    pub(crate) fn speak(&mut self, session: u64, resp3: bool) {
        for subscriber in self.subscribers.values_mut().flatten() {
            if subscriber.session == session {
                subscriber.resp3 = resp3;
            }
        }
    }

    pub(crate) fn deliveries(&mut self) -> std::vec::Drain<'_, Delivery> {
        self.deliveries.drain(..)
    }

    pub(super) fn add(&mut self, channel: &[u8], session: &Session) {
        let subscriber = Subscriber { session: session.id, resp3: session.resp3 };
        self.subscribers.entry(channel.to_vec()).or_default().push(subscriber);
    }

    pub(super) fn remove(&mut self, channel: &[u8], session: u64) {
        if let Some(subscribers) = self.subscribers.get_mut(channel) {
            subscribers.retain(|subscriber| subscriber.session != session);
            if subscribers.is_empty() {
                self.subscribers.remove(channel);
            }
        }
    }
}
