//! The generator that an engine draws tokens, names and pauses from.
//!
//! Layer: bottom, plain values.

use rand::rngs::ChaCha12Rng;
use rand::{Rng, SeedableRng};

/// A generator that nobody can predict without its seed.
pub(crate) struct Generator(ChaCha12Rng);

impl Generator {
    pub(crate) fn from_seed(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    pub(crate) fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// A number from 0 to just below 1.
    pub(crate) fn share(&mut self) -> f64 {
        f64::from(self.bits()) / 2_f64.powi(32)
    }
}

/// Two clients that draw the same tokens would hold each other's locks, so only the exhaustive
/// search of the simulation copies an engine.
#[cfg(feature = "sim")]
impl Clone for Generator {
    fn clone(&self) -> Self {
        Self(ChaCha12Rng::deserialize_state(&self.0.serialize_state()))
    }
}
