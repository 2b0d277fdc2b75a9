//! See `carina_fuzz::socks5`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::socks5(data));
