//! See `carina_fuzz::vmpi_endpoint`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vmpi_endpoint(data));
