//! See `carina_fuzz::lua_script`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::lua_script(data));
