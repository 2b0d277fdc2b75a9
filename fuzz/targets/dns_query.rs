//! See `carina_fuzz::dns_query`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::dns_query(data));
