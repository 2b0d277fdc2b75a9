//! See `carina_fuzz::app_frames`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::app_frames(data));
