//! See `carina_fuzz::auth`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::auth(data));
