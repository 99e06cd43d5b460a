//! See `redbolt::fuzzing::engine_ops`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt::fuzzing::engine_ops(input));
