//! See `redbolt::fuzzing::embedded_input`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt::fuzzing::embedded_input(input));
