//! See `carina_fuzz::ring_consumer`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::ring_consumer(data));
