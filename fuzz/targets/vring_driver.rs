//! See `carina_fuzz::vring_driver`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vring_driver(data));
