//! See `carina_fuzz::arp`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::arp(data));
