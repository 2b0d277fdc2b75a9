//! See `carina_fuzz::dissect`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::dissect(data));
