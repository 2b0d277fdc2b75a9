//! See `carina_fuzz::capture_frames`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::capture_frames(data));
