//! `struct msghdr` in the memory of a program (`recvmsg(2)`, 64 bits).
//!
//! ```text
//! 0 name, 8 name_length (4) | 16 parts, 24 their number | 32 control, 40 its length | 48 flags (4)
//! ```

use rustix::io::Errno;

use crate::supervisor::caller::{Caller, Part};

/// A message, as it was in the program's memory when the call began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// Address in memory of the socket address; 0 without one.
    pub name: u64,
    /// Length of the socket address in bytes.
    pub name_length: u32,
    parts_at: u64,
    parts: u64,
}

impl Message {
    /// Reads the message at address `at`.
    ///
    /// # Errors
    /// `EFAULT`
    pub(super) fn read(caller: &Caller<'_>, at: u64) -> Result<Message, Errno> {
        let bytes: [u8; BYTES] = caller.read(at)?;
        Ok(Message {
            name: word(&bytes, 0),
            name_length: word(&bytes, 8) as u32,
            parts_at: word(&bytes, 16),
            parts: word(&bytes, 24),
        })
    }

    /// Reads the list of the message's parts.
    ///
    /// # Errors
    /// `EMSGSIZE`: more parts than the kernel accepts. `EINVAL`: their lengths are too large
    /// together. `EFAULT`.
    pub(super) fn parts(&self, caller: &Caller<'_>) -> Result<Vec<Part>, Errno> {
        let count = usize::try_from(self.parts).ok();
        let count = count.filter(|count| *count <= PARTS_MAX);
        let mut bytes = vec![0; count.ok_or(Errno::MSGSIZE)? * PART_BYTES];
        caller.read_into(&mut bytes, self.parts_at)?;
        let mut total = 0usize;
        bytes
            .chunks_exact(PART_BYTES)
            .map(|part| {
                let length = usize::try_from(word(part, 8)).map_err(|_| Errno::INVAL)?;
                let sum = total.checked_add(length).filter(|sum| *sum <= LENGTH_MAX);
                total = sum.ok_or(Errno::INVAL)?;
                Ok((word(part, 0), length))
            })
            .collect()
    }

    /// Writes what `recvmsg` returns into the message at `at`: the sender, no control messages, and
    /// flags.
    ///
    /// # Errors
    /// `EFAULT`
    pub(super) fn write_received(
        &self,
        caller: &Caller<'_>,
        at: u64,
        sender: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        if self.name != 0 {
            let written = sender.len().min(self.name_length as usize);
            caller.write(&sender[..written], self.name)?;
            caller.write(&(sender.len() as u32).to_ne_bytes(), at + 8)?;
        }
        caller.write(&0u64.to_ne_bytes(), at + 40)?;
        caller.write(&flags.to_ne_bytes(), at + 48)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

/// Bytes of `struct msghdr`.
pub(super) const BYTES: usize = 56;

/// Bytes of `struct iovec`.
const PART_BYTES: usize = 16;

/// `UIO_MAXIOV`: the largest number of parts that the kernel accepts.
const PARTS_MAX: usize = 1024;

/// Largest sum of the lengths of all parts: that of the kernel (`MAX_RW_COUNT`, about 2 GiB).
const LENGTH_MAX: usize = 0x7fff_f000;
