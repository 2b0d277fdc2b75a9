//! See `carina_fuzz::irati`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::irati(data));
