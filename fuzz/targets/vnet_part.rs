//! See `carina_fuzz::vnet_part`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vnet_part(data));
