//! See `carina_fuzz::cdap`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::cdap(data));
