//! See `carina_fuzz::unprotect`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::unprotect(data));
