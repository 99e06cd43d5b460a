//! See `redbolt::fuzzing::address_parse`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt::fuzzing::address_parse(input));
