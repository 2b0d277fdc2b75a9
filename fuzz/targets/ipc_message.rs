//! See `carina_fuzz::ipc_message`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::ipc_message(data));
