//! See `carina_fuzz::lwaftr_frames`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::lwaftr_frames(data));
