//! Random numbers that no other process has.

use std::io;

/// A number that others do not guess.
///
/// # Errors
/// The system gives none.
pub fn drawn() -> io::Result<u64> {
    let mut seed = [0; 8];
    let mut filled = 0;
    while filled < seed.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut seed[filled..], flags)?;
    }
    Ok(u64::from_le_bytes(seed))
}
