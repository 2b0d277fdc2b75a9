//! See `carina_fuzz::pcap_file`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::pcap_file(data));
