//! See `redbolt::fuzzing::resp_chunked`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt::fuzzing::resp_chunked(input));
