//! See `carina_fuzz::rlite`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::rlite(data));
