//! See `carina_fuzz::enrollment`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::enrollment(data));
