//! See `carina_fuzz::connect_reader`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::connect_reader(data));
