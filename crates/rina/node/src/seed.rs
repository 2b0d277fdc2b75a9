//! Numbers that must not be guessed.

/// For everything in an IPCP that must not be guessed or the same twice.
pub fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Not before the kernel's pool is filled, at the very start of a system.
        _ => carina_sys::monotonic_ns(),
    }
}
