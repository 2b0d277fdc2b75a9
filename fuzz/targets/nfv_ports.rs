//! See `carina_fuzz::nfv_ports`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::nfv_ports(data));
