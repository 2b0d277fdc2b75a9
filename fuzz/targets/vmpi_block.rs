//! See `carina_fuzz::vmpi_block`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vmpi_block(data));
