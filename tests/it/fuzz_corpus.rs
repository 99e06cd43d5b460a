//! The fuzz targets without a fuzzer: their committed corpora, and the faults that fuzzing has
//! found.
//!
//! The faults that it found in the engine are in `src/engine/tests/fuzzed.rs`.

use std::fs;

use redbolt::fuzzing::TARGETS;
use redbolt::inspect::Address;

use crate::common::root;

/// Goal: every test run tries the inputs that once broke a target, or that reach far into the code.
/// Method: each line of `fuzz/corpus`, an input in hexadecimal digits, goes through its target.
#[test]
fn every_input_of_the_corpora_keeps_its_targets_promise() {
    let root = root().join("fuzz");
    for (name, target) in TARGETS {
        let corpus = root.join("corpus").join(format!("{name}.hex"));
        let inputs = fs::read_to_string(corpus).expect("each target has one");
        assert!(!inputs.is_empty(), "{name}: no input");
        inputs.lines().for_each(|digits| target(&bytes(digits)));
        let file = root.join("fuzz_targets").join(format!("{name}.rs"));
        assert!(file.exists(), "{name} is run by the fuzzer too");
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")).collect()
}

/// Goal: neither an empty input nor any first byte is a special case. Method: the shortest inputs.
#[test]
fn every_input_of_one_byte_keeps_every_targets_promise() {
    for (_, target) in TARGETS {
        target(b"");
        for byte in 0..=u8::MAX {
            target(&[byte]);
        }
    }
}

/// `address_parse` found it: the parser took all text before the first `://` for the scheme, and
/// printed it.
#[test]
fn a_password_with_a_scheme_in_it_is_not_printed() {
    for text in ["user:s3cret://x@h:1", "x::s3cret[://@", "redis:/u:s3cret://x@h"] {
        let error = Address::parse(text).expect_err("no address");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}
