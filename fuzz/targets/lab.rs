//! See `carina_fuzz::lab`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::lab(data));
