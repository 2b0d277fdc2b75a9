//! See `carina_fuzz::vhost_user`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::vhost_user(data));
