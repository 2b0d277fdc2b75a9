//! See `carina_fuzz::vmpi_stream`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vmpi_stream(data));
