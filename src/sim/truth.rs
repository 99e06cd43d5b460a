//! What the servers really hold, seen from nowhere: the ground that a holder's belief stands on.

use super::world::World;

impl World {
    /// As long as a holder believes in its lease, a quorum of servers holds the token beyond the
    /// deadline that the holder was told; servers that forgot it since its call began are excused,
    /// for they are what the guard and the spare votes are for.
    pub(super) fn check_ground(&mut self, client: usize, task: usize) {
        let this = &self.clients[client];
        let (key, began) = (self.plan.on_nodes(this.tasks[task].key), this.tasks[task].began);
        let Some(lease) = this.tasks[task].lease else { return };
        let Some(deadline) = this.engine.deadline(lease) else { return };
        let Some((_, token)) = this.engine.lease_name(lease) else { return };
        let end = this.clock.global(deadline);
        if end <= self.now {
            return;
        }
        let mut held = 0;
        for node in &mut self.nodes {
            let local = node.clock.local(self.now);
            let is_held = node.server.value(&key, local) == Some(token.as_bytes());
            let ttl_ms = node.server.ttl_ms(&key, local).unwrap_or(0).unsigned_abs();
            let lasts_until = node.clock.global(local + std::time::Duration::from_millis(ttl_ms));
            // A key lives up to a millisecond longer than its TTL, so this is less than the truth.
            let has_forgotten = node.forgot_at.is_some_and(|forgot_at| forgot_at >= began);
            held += usize::from((is_held && lasts_until + 2_000_000 >= end) || has_forgotten);
        }
        let quorum = self.plan.quorum;
        self.oracle.check(held >= quorum, || {
            format!(
                "client {client} holds {} until {end} by {held} nodes",
                token.as_bytes().escape_ascii()
            )
        });
    }
}
