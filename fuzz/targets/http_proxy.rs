//! See `carina_fuzz::http_proxy`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::http_proxy(data));
