//! Frames past the kernel's stack (AF_XDP): a program at the driver puts them into memory of this
//! process.
//!
//! ```text
//!   memory (UMEM): chunks of 4096 bytes; half for frames that come in, half for those that leave
//!   fill:        chunks that the kernel may fill          -> kernel
//!   rx:          chunks with frames                       <- kernel
//!   tx:          chunks with frames                       -> kernel
//!   completion:  chunks that were sent                    <- kernel
//! ```
//!
//! Each ring has one producer and one consumer, whose counters run freely (Linux,
//! `include/uapi/linux/if_xdp.h`). The program is attached at the driver, or else in the kernel's
//! generic place behind it. It takes the frames of one queue; others go on to the kernel.
#![allow(unsafe_code)]

mod opening;
mod program;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use carina_sys::Mapping;

use self::ring::Ring;

/// How frames get from the driver into memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The device writes them there.
    ZeroCopy,
    /// The driver's part of the kernel copies them.
    Native,
    /// The generic part of the kernel copies them, from where its stack would take them.
    Generic,
}

/// A socket for the frames of one queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    // Fields are dropped in this order: the program goes first, the memory last.
    _program: program::Program,
    fd: OwnedFd,
    fill: Ring,
    completion: Ring,
    rx: Ring,
    tx: Ring,
    /// Chunks for frames that leave, which are free.
    free: Vec<u64>,
    /// Frames received since [`XdpSocket::release`].
    taken: Vec<u64>,
    /// The chunk of [`XdpSocket::reserve`].
    reserved: Option<u64>,
    mode: XdpMode,
    memory: Mapping,
}

impl XdpSocket {
    /// How frames get here.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The next frame, when one is there; it stays until [`XdpSocket::release`].
    pub fn receive(&mut self) -> Option<&[u8]> {
        let (address, bytes) = self.rx.take_frame()?;
        let chunk = address - address % CHUNK_BYTES;
        let (from, bytes) = (address as usize, bytes as usize);
        // The kernel keeps to this; what it says is checked all the same.
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

    /// Whether [`XdpSocket::receive`] would find a frame.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.rx.waiting() > 0
    }

    /// Gives the chunks of all frames taken back to the kernel.
    pub fn release(&mut self) {
        for chunk in self.taken.drain(..) {
            // The fill ring has a place for every chunk.
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

    /// Frames that can be sent before the next flush.
    pub fn free_frames(&mut self) -> usize {
        while let Some(chunk) = self.completion.take_chunk() {
            let is_own = (RX_CHUNKS * CHUNK_BYTES..CHUNKS * CHUNK_BYTES).contains(&chunk);
            // What the kernel says is checked: a chunk that is not one of these is not used again.
            if is_own && self.free.len() < TX_CHUNKS as usize {
                self.free.push(chunk - chunk % CHUNK_BYTES);
            }
        }
        self.completion.publish();
        self.free.len().min(self.tx.room())
    }

    /// A place for a frame of `bytes`, to be filled and then committed; `None` when there is no
    /// free one, or the frame is longer than [`XDP_FRAME_BYTES_MAX`].
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

    /// Hands the frame in the place reserved last to the next flush.
    pub fn commit(&mut self, bytes: usize) {
        if let Some(chunk) = self.reserved.take() {
            self.tx.put_frame(chunk, bytes as u32);
        }
    }

    /// Has the kernel send what was committed. False when it did not take all of it: then call
    /// again a little later.
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
    /// Readable when a frame has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The longest frame that is sent or received, in bytes: what a chunk has behind the kernel's part.
pub const XDP_FRAME_BYTES_MAX: usize = 3520;

const CHUNK_BYTES: u64 = 4096;
const RX_CHUNKS: u64 = 2048;
const TX_CHUNKS: u64 = 2048;
const CHUNKS: u64 = RX_CHUNKS + TX_CHUNKS;
