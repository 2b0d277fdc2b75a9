//! See `carina_fuzz::link_state`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::link_state(data));
