//! Random numbers that cannot be guessed.

/// Returns a random number that cannot be guessed, as seed for an IPCP.
pub(crate) fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // `getrandom` fails only before the kernel's pool is initialized, early in the system's
        // start.
        _ => carina_sys::monotonic_ns(),
    }
}
