//! See `carina_fuzz::import_rlite`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::import_rlite(data));
