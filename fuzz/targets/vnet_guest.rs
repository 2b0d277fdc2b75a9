//! See `carina_fuzz::vnet_guest`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vnet_guest(data));
