//! SDUs that are written directly from the ring into a file, such as packets into a TUN device.
//!
//! The ring is raw memory that the remote application may write at the same time, so no reference
//! to it is made. The caller judges a copy of the first bytes, and the file gets this copy: only
//! bytes that were not judged are read by the kernel.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::FlowReceiver;
use crate::error::Error;

/// Where an SDU goes, by the decision of the caller of [`FlowReceiver::try_recv_to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// The file gets the room from this offset, up to the end of the copied bytes, and then the
    /// rest of the SDU.
    From(usize),
    /// The SDU is discarded.
    Drop,
    /// The SDU stays, and is received by the next call of any kind.
    Stay,
}

/// What [`FlowReceiver::try_recv_to`] did.
#[derive(Debug)]
pub enum ToFile {
    /// The SDU has left the ring. The value is the number of bytes that the file took, or the error
    /// that the file returned.
    Written(io::Result<usize>),
    /// The SDU was discarded.
    Dropped,
    /// The SDU stays in the ring, because the caller decided so or because the SDU has several
    /// fragments.
    Stayed,
    /// No SDU has arrived.
    Empty,
}

impl FlowReceiver {
    /// Writes the next SDU into a file as one message, without copying more than its first bytes.
    /// It never waits.
    ///
    /// The first bytes of the SDU are copied into `room` from the offset `at`, as many as fit.
    /// `judge` gets the room and the length of the SDU, may change the room, and decides. After the
    /// flow has ended, up to seven calls may still return [`ToFile::Empty`] before one returns the
    /// error.
    ///
    /// # Errors
    ///
    /// As for [`Self::try_recv_vec`].
    ///
    /// # Panics
    ///
    /// When `at` or the decision is an offset beyond the room.
    pub fn try_recv_to(
        &mut self,
        file: BorrowedFd<'_>,
        room: &mut [u8],
        at: usize,
        judge: impl FnOnce(&mut [u8], usize) -> Passing,
    ) -> Result<ToFile, Error> {
        let partial = self.partial.is_some();
        let Some(fragment) = self.front()? else {
            return self.note_empty().map(|()| ToFile::Empty);
        };
        if partial || fragment.more() {
            return Ok(ToFile::Stayed);
        }
        let length = fragment.len();
        let copied = fragment.copy_to(&mut room[at..]);
        let outcome = match judge(room, length) {
            Passing::Stay => return Ok(ToFile::Stayed),
            Passing::Drop => ToFile::Dropped,
            Passing::From(from) => {
                let local = &room[from..at + copied];
                let parts = [
                    libc::iovec {
                        iov_base: local.as_ptr().cast_mut().cast(),
                        iov_len: local.len(),
                    },
                    libc::iovec {
                        // The kernel only reads.
                        iov_base: fragment.as_ptr().wrapping_add(copied).cast_mut().cast(),
                        iov_len: length - copied,
                    },
                ];
                // SAFETY: both parts are readable during the call: `local` is borrowed, and the
                // fragment's bytes are mapped and not released until `step`.
                let written = unsafe { libc::writev(file.as_raw_fd(), parts.as_ptr(), 2) };
                let written = usize::try_from(written);
                ToFile::Written(written.map_err(|_| io::Error::last_os_error()))
            }
        };
        self.step();
        self.count(length as u64, length)?;
        Ok(outcome)
    }
}
