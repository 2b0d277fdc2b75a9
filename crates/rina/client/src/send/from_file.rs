//! Messages of a file, such as packets of a TUN device, that are read directly into the ring.
//!
//! The ring is raw memory that the remote application may write at the same time, so no reference
//! to it is made: the kernel writes it, and what this process looks at is a copy.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use carina_ring::{Refused, copy_shared};

use super::{FlowSender, STATE_EVERY, not_broken};
use crate::error::Error;

/// What [`FlowSender::try_send_from`] did.
#[derive(Debug)]
pub enum FromFile {
    /// The next message of the file is sent as an SDU of so many bytes.
    Sent(usize),
    /// The next message is in the caller's buffer, with so many bytes, and is not sent.
    Kept(usize),
    /// The file has no message now.
    Empty,
    /// The ring has no space. Nothing was read.
    Full,
    /// Reading the file failed.
    Failed(io::Error),
}

impl FlowSender {
    /// Reads the next message of a file that does not block, and sends it as an SDU without another
    /// copy. `buffer` has the length of the longest message, at most [`Self::piece_max`].
    ///
    /// `may_send` gets the first bytes of the message, at most [`HEAD_BYTES`], and its length. If
    /// it returns `false`, the message is not sent but copied into `buffer`.
    ///
    /// # Errors
    ///
    /// As for [`Self::send`]. Nothing was read then.
    pub fn try_send_from(
        &mut self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        may_send: impl FnOnce(&[u8], usize) -> bool,
    ) -> Result<FromFile, Error> {
        if self.partial.is_some() {
            return Ok(FromFile::Full);
        }
        if self.free_sends == 0 {
            self.check(buffer.len())?;
            self.grant(self.until_look.clamp(1, STATE_EVERY));
            self.until_look = self.until_look.saturating_sub(self.granted);
        }
        let mut slot = match self.ring.reserve(buffer.len()) {
            Ok(slot) => slot,
            Err(refused @ Refused::TooLong { .. }) => {
                return not_broken(refused).map(|()| FromFile::Full);
            }
            Err(refused) => {
                not_broken(refused)?;
                self.check_end_now()?;
                return Ok(FromFile::Full);
            }
        };
        let at = slot.as_mut_ptr();
        // SAFETY: so many bytes are reserved and stay mapped while the slot lives; the kernel
        // writes at most so many.
        let read = unsafe { libc::read(file.as_raw_fd(), at.cast(), buffer.len()) };
        let Ok(length) = usize::try_from(read) else {
            let error = io::Error::last_os_error();
            return Ok(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => FromFile::Empty,
                _ => FromFile::Failed(error),
            });
        };
        let length = length.min(buffer.len());
        let mut head = [0; HEAD_BYTES];
        let copied = length.min(HEAD_BYTES);
        // SAFETY: the bytes are reserved, and `head` is private and long enough.
        unsafe { copy_shared(at, head.as_mut_ptr(), copied) };
        if !may_send(&head[..copied], length) {
            // SAFETY: as above; `buffer` is as long as what is reserved.
            unsafe { copy_shared(at, buffer.as_mut_ptr(), length) };
            return Ok(FromFile::Kept(length));
        }
        slot.commit_len(length, false);
        self.free_sends -= 1;
        self.stats.bytes_sent += length as u64;
        self.publish();
        Ok(FromFile::Sent(length))
    }
}

/// Largest number of bytes of a message that [`FlowSender::try_send_from`] shows its caller.
pub const HEAD_BYTES: usize = 192;
