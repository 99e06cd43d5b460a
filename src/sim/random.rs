//! The source of a run's choices: a seed, through splitmix64, which is fast and the same
//! everywhere. If a fuzzer gives bytes, they choose first, and a seed after them.

/// All choices of one run come from here, in the order they are made.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    /// The bytes that are left to choose by. The last byte is the next to choose.
    given: Vec<u8>,
    /// How much chance passes before the bytes make something happen, in permille.
    until_chance: u64,
}

impl Random {
    /// The choices of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, given: Vec::new(), until_chance: 0 }
    }

    /// The choices that `bytes` make, one each, and then those of a seed.
    #[must_use]
    pub fn given(bytes: &[u8]) -> Self {
        let given = bytes.iter().rev().copied().collect();
        Self { given, ..Self::new(0) }
    }

    /// Whether a byte makes the next choice.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// Any 64 bits, from the seed: a fuzzer's bytes choose no names.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not zero. A byte chooses one of at most 256, evenly spaced.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 1 && self.is_given() {
            return 0;
        }
        match self.given.pop() {
            Some(byte) => ((u128::from(byte) * u128::from(end)) >> 8) as u64,
            None => self.next() % end,
        }
    }

    /// An index into something of `len` entries.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        if most <= least { least } else { least + self.below(most - least + 1) }
    }

    /// True `permille` times in a thousand. A byte says how much chance passes before the next
    /// time, so a rare event takes few bytes.
    pub fn chance(&mut self, permille: u64) -> bool {
        if !self.is_given() {
            return self.next() % 1000 < permille;
        }
        if permille >= 1000 || permille <= self.until_chance {
            self.until_chance = self.until_chance.saturating_sub(permille);
            return permille >= 1000;
        }
        self.until_chance = 8 * self.below(256);
        true
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// `N` bytes, from the seed.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}
