//! See `carina_fuzz::lwaftr_file`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::lwaftr_file(data));
