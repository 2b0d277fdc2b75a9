//! See `carina_fuzz::vmpi_control`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vmpi_control(data));
