//! See `carina_fuzz::ivshmem_server`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::ivshmem_server(data));
