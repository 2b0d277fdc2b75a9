//! See `carina_fuzz::pcapng`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::pcapng(data));
