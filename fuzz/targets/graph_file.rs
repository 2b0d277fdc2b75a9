//! See `carina_fuzz::graph_file`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::graph_file(data));
