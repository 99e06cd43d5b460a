//! See `redbolt::fuzzing::duration_parse`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt::fuzzing::duration_parse(input));
