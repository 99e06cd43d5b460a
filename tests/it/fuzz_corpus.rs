//! The fuzz targets without a fuzzer: their committed corpora, and what fuzzing has found.
//!
//! What it found in the engine is in `src/engine/tests/fuzzed.rs`.

use std::fs;
use std::path::Path;

use redbolt::fuzzing::TARGETS;
use redbolt::inspect::Address;

/// Goal: what once broke a target, or reaches far into the code, is tried on every test run.
/// Method: each file of `fuzz/corpus` through its target.
#[test]
fn every_input_of_the_corpora_keeps_its_targets_promise() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    for (name, target) in TARGETS {
        let entries = fs::read_dir(root.join("corpus").join(name)).expect("each target has one");
        let mut count = 0;
        for entry in entries.flatten() {
            target(&fs::read(entry.path()).expect("a readable file"));
            count += 1;
        }
        assert!(count > 0, "{name}: no input");
        let file = root.join("fuzz_targets").join(format!("{name}.rs"));
        assert!(file.exists(), "{name} is run by the fuzzer too");
    }
}

/// Goal: nothing in memory, and no input at all, is a special case. Method: the shortest inputs.
#[test]
fn every_input_of_one_byte_keeps_every_targets_promise() {
    for (_, target) in TARGETS {
        target(b"");
        for byte in 0..=u8::MAX {
            target(&[byte]);
        }
    }
}

/// Found by `address_parse`: all before the first `://` was taken for the scheme and printed.
#[test]
fn a_password_with_a_scheme_in_it_is_not_printed() {
    for text in ["user:s3cret://x@h:1", "x::s3cret[://@", "redis:/u:s3cret://x@h"] {
        let error = Address::parse(text).expect_err("no address");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}
