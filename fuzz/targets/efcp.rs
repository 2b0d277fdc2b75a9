//! See `carina_fuzz::efcp`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::efcp(data));
