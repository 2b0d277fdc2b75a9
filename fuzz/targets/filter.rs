//! See `carina_fuzz::filter`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::filter(data));
