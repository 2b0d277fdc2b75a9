//! See `carina_fuzz::xenstore`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::xenstore(data));
