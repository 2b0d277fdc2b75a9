//! See `carina_fuzz::trace_request`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::trace_request(data));
