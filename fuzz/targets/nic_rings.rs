//! See `carina_fuzz::nic_rings`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::nic_rings(data));
