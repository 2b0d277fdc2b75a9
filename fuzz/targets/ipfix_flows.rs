//! See `carina_fuzz::ipfix_flows`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::ipfix_flows(data));
