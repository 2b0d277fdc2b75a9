//! See `carina_fuzz::vnet_token`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vnet_token(data));
