//! See `carina_fuzz::import_vnet`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::import_vnet(data));
