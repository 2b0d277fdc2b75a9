//! The set of descriptor numbers that were listening or relayed sockets in this process. It is a
//! hint that costs no system call, for calls that carry data; the mark of the socket, which the
//! kernel keeps, decides.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

static NUMBERS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Adds a descriptor number to the set.
pub(crate) fn note(socket: c_int) {
    if let Some((word, bit)) = place(socket) {
        NUMBERS[word].fetch_or(bit, Ordering::Relaxed);
    }
}

/// Whether a descriptor number may be a listening or a relayed socket.
pub(crate) fn may_be(socket: c_int) -> bool {
    place(socket).is_some_and(|(word, bit)| NUMBERS[word].load(Ordering::Relaxed) & bit != 0)
}

fn place(socket: c_int) -> Option<(usize, u64)> {
    let socket = usize::try_from(socket).ok()?;
    (socket < WORDS * 64).then_some((socket / 64, 1 << (socket % 64)))
}

/// Size of the set in words: it holds the numbers below 1,024, which listening sockets have.
const WORDS: usize = 16;
