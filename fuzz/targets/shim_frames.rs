//! See `carina_fuzz::shim_frames`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::shim_frames(data));
