//! Guides: a tutorial, one guide for each way in, fencing, the settings, how to test, and when to
//! take another lock. Every example runs as a test.
//!
// Rustdoc takes the first of two definitions of a link: these, not those in the files. The files'
// own links are for people who read the files.
//! [tutorial.md]: crate::guide::tutorial
//! [guide-client.md]: crate::guide::client
//! [guide-mio.md]: crate::guide::mio_loop
//! [guide-loops.md]: crate::guide::other_loops
//! [guide-engine.md]: crate::guide::engine
//! [guide-testing.md]: crate::guide::testing
//! [guide-election.md]: crate::guide::election
//! [fencing.md]: crate::guide::fencing
//! [settings.md]: crate::guide::settings
//! [comparison.md]: crate::guide::comparison
#![doc = ""]
#![doc = include_str!("../docs/guide.md")]

/// [guide.md]: crate::guide
/// [guide-client.md]: crate::guide::client
/// [fencing.md]: crate::guide::fencing
#[doc = ""]
#[doc = include_str!("../docs/tutorial.md")]
pub mod tutorial {}

#[doc = include_str!("../docs/guide-client.md")]
pub mod client {}

#[doc = include_str!("../docs/guide-mio.md")]
pub mod mio_loop {}

/// [guide-client.md]: crate::guide::client
#[doc = ""]
#[doc = include_str!("../docs/guide-loops.md")]
pub mod other_loops {}

#[doc = include_str!("../docs/guide-engine.md")]
pub mod engine {}

#[doc = include_str!("../docs/guide-testing.md")]
pub mod testing {}

/// [fencing.md]: crate::guide::fencing
#[doc = ""]
#[doc = include_str!("../docs/guide-election.md")]
pub mod election {}

/// [fence-proof.md]: crate::guide::fence_proof
#[doc = ""]
#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

/// [fencing.md]: crate::guide::fencing
#[doc = ""]
#[doc = include_str!("../docs/fence-proof.md")]
pub mod fence_proof {}

#[doc = include_str!("../docs/settings.md")]
pub mod settings {}

/// [fencing.md]: crate::guide::fencing
#[doc = ""]
#[doc = include_str!("../docs/comparison.md")]
pub mod comparison {}
