//! Virtqueues whose other end is the fuzzer.

/// A device half, of either layout, against a driver that follows the script.
pub fn vring_device(data: &[u8]) {
    let _ = carina_vring::fuzz::device(data);
}

/// A driver half, of either layout, against a device that follows the script.
pub fn vring_driver(data: &[u8]) {
    let _ = carina_vring::fuzz::driver(data);
}
