//! See `redbolt::fuzzing::resp_roundtrip`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt::fuzzing::resp_roundtrip(input));
