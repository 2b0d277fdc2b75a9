//! See `carina_fuzz::configuration`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::configuration(data));
