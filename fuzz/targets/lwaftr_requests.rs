//! See `carina_fuzz::lwaftr_requests`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::lwaftr_requests(data));
