//! The bodies of the fuzz targets in `fuzz/`: each takes bytes and panics when a promise is broken.
//!
//! Layer: beside the others, for tests only. They stand here so that a change of the library that
//! breaks one breaks the build. `tests/it/fuzz_corpus.rs` runs the committed corpora through them,
//! and each find of a fuzzer is a named test there.
//!
//! | target | promise |
//! |---|---|
//! | [`resp_decode`] | any bytes end as frames and an error or a rest, in linear work |
//! | [`resp_chunked`] | cutting the input anywhere changes neither |
//! | [`resp_roundtrip`] | what is encoded is decoded as it was |
//! | [`engine_ops`] | the simulation's judge has nothing to say, whatever is chosen |
//! | [`address_parse`] | any text is an address or an error, and no login is printed |
//! | [`embedded_input`] | whatever a client sends, an embedded node answers in RESP |

#![expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a panic is how a target reports"
)]

mod embedded;
mod replies;
mod source;
mod values;

pub use embedded::embedded_input;
pub use replies::{resp_chunked, resp_decode, resp_roundtrip};
pub use values::address_parse;

/// The simulation, with the input's choices instead of a seed's. Engines run among nodes that
/// answer, lie, hang, die and restart, under callers that make any call.
pub fn engine_ops(input: &[u8]) {
    assert_eq!(crate::sim::run_given(input, None, None).violation, None);
}

/// A target: its name and its body.
pub type Target = (&'static str, fn(&[u8]));

/// Every target by its name.
pub const TARGETS: [Target; 6] = [
    ("resp_decode", resp_decode),
    ("resp_chunked", resp_chunked),
    ("resp_roundtrip", resp_roundtrip),
    ("engine_ops", engine_ops),
    ("address_parse", address_parse),
    ("embedded_input", embedded_input),
];
