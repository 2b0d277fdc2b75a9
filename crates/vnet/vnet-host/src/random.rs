//! Random numbers of the operating system.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Attempt, Result};

/// Reads `N` random bytes from the kernel.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let more = getrandom(&mut bytes[filled..], GetRandomFlags::empty());
        filled += more.attempt("drawing a random number")?;
    }
    Ok(bytes)
}
