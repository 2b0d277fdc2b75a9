//! See `carina_fuzz::pci`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| carina_fuzz::pci(data));
