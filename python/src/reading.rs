//! What both kinds of leases tell in the same way.

use std::time::Duration;

use redbolt::{Guard, Lease};

pub(crate) trait Reading {
    /// How long the lock is still certainly held.
    fn remaining(&self) -> Duration;
    fn keys(&self) -> Vec<Vec<u8>>;
}

impl Reading for Guard {
    fn remaining(&self) -> Duration {
        if self.is_lost() { Duration::ZERO } else { self.remaining() }
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.keys().map(<[u8]>::to_vec).collect()
    }
}

impl Reading for Lease {
    fn remaining(&self) -> Duration {
        self.remaining()
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.keys().map(<[u8]>::to_vec).collect()
    }
}

/// The line that `repr` shows: no token.
pub(crate) fn shown(name: &str, lease: Option<&impl Reading>) -> String {
    let Some(lease) = lease else { return format!("<{name}, unlocked>") };
    let keys: Vec<_> = lease.keys().iter().map(|key| key.escape_ascii().to_string()).collect();
    format!("<{name} of {}, {:.3} s left>", keys.join(", "), lease.remaining().as_secs_f64())
}
