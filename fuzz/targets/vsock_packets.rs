//! See `carina_fuzz::vsock_packets`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vsock_packets(data));
