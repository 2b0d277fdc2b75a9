//! See `carina_fuzz::vsock_hybrid`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vsock_hybrid(data));
