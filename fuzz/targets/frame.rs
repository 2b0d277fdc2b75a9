//! See `carina_fuzz::frame`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::frame(data));
