//! See `carina_fuzz::ip_sdu`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::ip_sdu(data));
