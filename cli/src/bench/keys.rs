//! The keys of a benchmark.

use std::io::Write as _;
use std::time::Duration;

use redbolt::now;

/// The keys of a killed benchmark end after this time.
pub(super) const TTL: Duration = Duration::from_secs(5);

/// Names of keys that no other run uses. Making one allocates nothing.
#[derive(Debug)]
pub(super) struct Keys {
    name: Vec<u8>,
    prefix_len: usize,
    count: u64,
}

impl Keys {
    pub(super) fn new() -> Self {
        let prefix = format!("redbolt:bench:{:x}:{:x}:", std::process::id(), now().as_nanos());
        let (prefix_len, mut name) = (prefix.len(), prefix.into_bytes());
        name.reserve(DIGITS_MAX);
        Self { name, prefix_len, count: 0 }
    }

    pub(super) fn next(&mut self) -> &[u8] {
        self.count += 1;
        self.name.truncate(self.prefix_len);
        // Writing into a vector cannot fail.
        let _ = write!(self.name, "{}", self.count);
        &self.name
    }
}

/// Digits of the greatest number of a key.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_without_an_allocation() {
        let mut keys = Keys::new();
        let mut names = Vec::with_capacity(4);
        let mut take = |from: u64| {
            keys.count = from;
            let allocations = allocation_counter::measure(|| {
                keys.next();
            });
            assert_eq!(allocations.count_total, 0);
            names.push(String::from_utf8(keys.name.clone()).unwrap());
        };
        [0, 8, 9, u64::MAX - 1].into_iter().for_each(&mut take);
        let numbers: Vec<&str> = names.iter().filter_map(|name| name.rsplit(':').next()).collect();
        assert_eq!(numbers, ["1", "9", "10", "18446744073709551615"]);
    }
}
