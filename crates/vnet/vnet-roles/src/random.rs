//! Random numbers of the operating system.

use std::io;

/// An unpredictable random number.
///
/// # Errors
/// The system provides none.
pub(crate) fn drawn() -> io::Result<u64> {
    let mut seed = [0; 8];
    let mut filled = 0;
    while filled < seed.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut seed[filled..], flags)?;
    }
    Ok(u64::from_le_bytes(seed))
}
