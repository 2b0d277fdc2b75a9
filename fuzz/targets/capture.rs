//! See `carina_fuzz::capture`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::capture(data));
