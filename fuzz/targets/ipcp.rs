//! See `carina_fuzz::ipcp`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::ipcp(data));
