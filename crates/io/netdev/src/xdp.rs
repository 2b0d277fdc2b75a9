//! AF_XDP sockets: a program at the driver moves frames into memory of this process, past the
//! kernel's network stack.
//!
//! ```text
//!   memory (UMEM): chunks of 4096 bytes; half for frames that come in, half for those that leave
//!   fill:        chunks that the kernel may fill          -> kernel
//!   rx:          chunks with frames                       <- kernel
//!   tx:          chunks with frames                       -> kernel
//!   completion:  chunks that were sent                    <- kernel
//! ```
//!
//! Each ring has one producer and one consumer, with free-running counters (Linux,
//! `include/uapi/linux/if_xdp.h`). The program is attached in the driver, or, if the driver does
//! not support that, in the kernel's generic hook behind it. It takes the frames of one queue;
//! frames of other queues go to the kernel's network stack.
#![allow(unsafe_code)]

mod opening;
pub(crate) mod program;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use carina_sys::Mapping;

use self::ring::Ring;

/// How frames move between the driver and the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The device reads and writes the memory of this process directly.
    ZeroCopy,
    /// The kernel's driver of the interface copies the frames.
    Native,
    /// The kernel copies the frames at its generic hook, in front of the network stack; works with
    /// every driver.
    Generic,
}

/// An AF_XDP socket for the frames that arrive at one queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    // Fields are dropped in this order: the program first, the memory last.
    _program: program::Program,
    fd: OwnedFd,
    fill: Ring,
    completion: Ring,
    rx: Ring,
    tx: Ring,
    /// Free chunks for frames to send.
    free: Vec<u64>,
    /// Chunks of frames received since [`XdpSocket::release`].
    taken: Vec<u64>,
    /// The chunk that [`XdpSocket::reserve`] returned and that is not committed.
    reserved: Option<u64>,
    mode: XdpMode,
    memory: Mapping,
}

impl XdpSocket {
    /// Returns how frames move between the driver and the memory of this process.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Returns the next frame that has arrived, or `None`; does not wait. The frame stays valid
    /// until [`XdpSocket::release`].
    pub fn receive(&mut self) -> Option<&[u8]> {
        let (address, bytes) = self.rx.take_frame()?;
        let chunk = address - address % CHUNK_BYTES;
        let (from, bytes) = (address as usize, bytes as usize);
        // The kernel's address and length are checked, although a correct kernel keeps to the
        // chunk.
        let is_inside =
            chunk < RX_CHUNKS * CHUNK_BYTES && address % CHUNK_BYTES + bytes as u64 <= CHUNK_BYTES;
        if !is_inside {
            return Some(&[]);
        }
        self.taken.push(chunk);
        // SAFETY: the bytes are inside a chunk of the memory (checked above), which the kernel does
        // not touch before it is in the fill ring again; that borrows `self` anew.
        Some(unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(from), bytes) })
    }

    /// Whether [`XdpSocket::receive`] would return a frame.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.rx.waiting() > 0
    }

    /// Returns the chunks of all received frames to the kernel, which reuses them. The frames are
    /// no longer valid.
    pub fn release(&mut self) {
        for chunk in self.taken.drain(..) {
            // The fill ring has an entry for every chunk.
            self.fill.put_chunk(chunk);
        }
        self.rx.publish();
        self.fill.publish();
        if self.fill.needs_wakeup() {
            // SAFETY: no memory is passed.
            unsafe {
                let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
                libc::recvfrom(
                    fd,
                    std::ptr::null_mut(),
                    0,
                    flags,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                );
            }
        }
    }

    /// Returns the number of frames that can be reserved before the next flush.
    pub fn free_frames(&mut self) -> usize {
        while let Some(chunk) = self.completion.take_chunk() {
            let is_own = (RX_CHUNKS * CHUNK_BYTES..CHUNKS * CHUNK_BYTES).contains(&chunk);
            // The kernel's answer is checked: a chunk that does not belong to the send half is not
            // used again.
            if is_own && self.free.len() < TX_CHUNKS as usize {
                self.free.push(chunk - chunk % CHUNK_BYTES);
            }
        }
        self.completion.publish();
        self.free.len().min(self.tx.room())
    }

    /// Reserves a buffer for a frame of `bytes`, which the caller fills and then commits. `None` if
    /// no chunk is free, or the frame is longer than [`XDP_FRAME_BYTES_MAX`].
    pub fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > XDP_FRAME_BYTES_MAX || self.tx.room() == 0 {
            return None;
        }
        let chunk = match self.reserved {
            Some(chunk) => chunk,
            None => self.free.pop()?,
        };
        self.reserved = Some(chunk);
        // SAFETY: the chunk is inside the memory and as long, and neither the kernel nor anything
        // else has it; the slice borrows `self` until it is committed.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.memory.as_ptr().add(chunk as usize), bytes)
        })
    }

    /// Marks the frame that was reserved last, of `bytes`, to be sent by the next flush.
    pub fn commit(&mut self, bytes: usize) {
        if let Some(chunk) = self.reserved.take() {
            self.tx.put_frame(chunk, bytes as u32);
        }
    }

    /// Asks the kernel to send the committed frames. Returns false if it did not take all of them;
    /// the caller then tries again a little later.
    ///
    /// # Errors
    /// The kernel's refusal, such as `ENETDOWN`.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.tx.publish();
        if !self.tx.needs_wakeup() || self.tx.is_taken() {
            return Ok(true);
        }
        // SAFETY: no data is passed; the kernel reads the ring.
        let result = unsafe {
            let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
            libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0)
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            let is_passing = matches!(
                error.raw_os_error(),
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR)
            );
            if !is_passing {
                return Err(error);
            }
        }
        Ok(self.tx.is_taken())
    }
}

impl AsFd for XdpSocket {
    /// The descriptor is readable when a frame has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Longest frame to send or receive, in bytes: a chunk without the bytes that the kernel reserves
/// in it.
pub const XDP_FRAME_BYTES_MAX: usize = 3520;

const CHUNK_BYTES: u64 = 4096;
const RX_CHUNKS: u64 = 2048;
const TX_CHUNKS: u64 = 2048;
const CHUNKS: u64 = RX_CHUNKS + TX_CHUNKS;
