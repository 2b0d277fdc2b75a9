//! Ethernet frames through memory shared with the kernel (AF_PACKET, TPACKET_V2).
//!
//! ```text
//! mapping:  [ receive ring: frames of rx_frame_bytes ][ send ring: frames of tx_frame_bytes ]
//! frame:    status u32, len u32, captured u32, mac u16, net u16, sec u32, nsec u32,
//!           VLAN tag u16, VLAN Ethertype u16, .. then the frame: received at `mac`, sent at 32
//!
//!   receive:  KERNEL --kernel fills--> USER --taken, released--> KERNEL
//!   send:     AVAILABLE --filled--> SEND_REQUEST --one sendto per burst--> SENDING --> AVAILABLE
//! ```
//!
//! This module uses version 2, not 3. With version 3 the kernel hands over blocks of frames, and a
//! block that is not full only after a timeout of at least a millisecond; in a quiet network, that
//! would be added to each round-trip time. With version 2 a frame can be read as soon as it
//! arrives. The slots of version 2 all have one size, which costs nothing for frames of one MTU.
#![allow(unsafe_code)]

mod opening;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use carina_sys::Mapping;

pub use ring::{Layout, MAC_HEADER_BYTES, TAG_BYTES, VNET_HEADER_BYTES};
use ring::{RX_HEADER_BYTES_MAX, Ring};

/// The VLAN tag of a received frame, which the kernel has removed from the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The tag's control information: priority, drop eligibility and VLAN id.
    pub control: u16,
    /// Ethertype of the tag: 0x8100 for IEEE 802.1Q.
    pub ethertype: u16,
}

/// A received frame. It stays valid until [`PacketSocket::release`].
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The frame, beginning with the destination address, without the VLAN tag.
    pub frame: &'a [u8],
    /// The VLAN tag of the frame; `None` for an untagged frame.
    pub tag: Option<Tag>,
    /// The `virtio_net_hdr` with the remaining offload work; empty without `has_vnet_header`.
    pub vnet_header: &'a [u8],
    /// Whether the frame was longer than a slot of the ring and is truncated.
    pub is_cut: bool,
    /// Offset of the frame in the receive ring, in bytes.
    pub at: usize,
}

/// A socket that sends and receives the Ethernet frames of one interface, past the kernel's IP
/// stack.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    memory: Mapping,
    layout: Layout,
    rx: Ring,
    tx: Ring,
    /// The last frame that was too long for a slot.
    long: Vec<u8>,
}

impl PacketSocket {
    /// Returns the size in bytes of the receive ring, which is at the start of the mapping.
    #[must_use]
    pub fn rx_bytes(&self) -> usize {
        self.layout.rx_bytes
    }

    /// Returns the length of the longest frame that fits into a slot, in bytes.
    #[must_use]
    pub fn frame_bytes_max(&self) -> usize {
        let vnet = self.layout.vnet_bytes();
        self.layout.slot_bytes() - RX_HEADER_BYTES_MAX - vnet
    }

    fn status(&self, at: usize) -> u32 {
        self.memory.atomic_u32(at).load(Ordering::Acquire)
    }

    fn set_status(&self, at: usize, status: u32) {
        self.memory.atomic_u32(at).store(status, Ordering::Release);
    }

    fn word(&self, at: usize) -> u32 {
        self.memory.atomic_u32(at).load(Ordering::Relaxed)
    }

    /// Returns the next frame that has arrived, or `None`; does not wait.
    pub fn receive(&mut self) -> Option<Received<'_>> {
        if self.rx.out == self.rx.slots {
            return None;
        }
        let slot = self.rx.at(self.rx.next);
        let status = self.status(slot);
        if status & STATUS_USER == 0 {
            return None;
        }
        self.rx.advance();
        let (len, captured) = (self.word(slot + LEN_AT), self.word(slot + CAPTURED_AT));
        let mac = (self.word(slot + MAC_AT) & 0xffff) as usize;
        let vnet = self.layout.vnet_bytes();
        // The kernel's offset and length are checked, although a correct kernel keeps to the slot.
        let room = self.rx.slot_bytes.saturating_sub(mac);
        let bytes = (captured as usize).min(room);
        let from = mac.saturating_sub(vnet).min(self.rx.slot_bytes);
        let tag = (status & STATUS_TAG_VALID != 0).then(|| {
            let word = self.word(slot + TAG_AT);
            let known = status & STATUS_TAG_ETHERTYPE_VALID != 0;
            Tag {
                control: word as u16,
                ethertype: if known { (word >> 16) as u16 } else { 0x8100 },
            }
        });
        if status & STATUS_COPY != 0 {
            let (vnet_header, frame) = self.take_long().split_at_checked(vnet).unwrap_or_default();
            let is_cut = frame.len() < len as usize;
            return Some(Received {
                frame,
                tag,
                vnet_header,
                is_cut,
                at: slot + mac,
            });
        }
        // SAFETY: the place is inside the mapping, the bytes inside the place (checked above), and
        // the kernel does not write there until the place is released, which borrows `self` anew.
        let all = unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().add(slot + from),
                mac.min(self.rx.slot_bytes) - from + bytes,
            )
        };
        let (vnet_header, frame) = all.split_at(mac.min(self.rx.slot_bytes) - from);
        Some(Received {
            frame,
            tag,
            vnet_header,
            is_cut: captured < len || bytes < captured as usize,
            at: slot + mac,
        })
    }

    /// Receives the frame at the front of the socket's queue, which holds frames that fit into no
    /// slot.
    fn take_long(&mut self) -> &[u8] {
        self.long.resize(LONG_BYTES_MAX, 0);
        let (to, bytes) = (self.long.as_mut_ptr().cast(), self.long.len());
        // SAFETY: the buffer has that many bytes.
        let got = unsafe { libc::recv(self.fd.as_raw_fd(), to, bytes, libc::MSG_DONTWAIT) };
        self.long.truncate(usize::try_from(got).unwrap_or(0));
        &self.long
    }

    /// Whether [`PacketSocket::receive`] would return a frame.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        let slot = self.rx.at(self.rx.next);
        self.rx.out < self.rx.slots && self.status(slot) & STATUS_USER != 0
    }

    /// Returns the slots of all received frames to the kernel, which reuses them. The frames are no
    /// longer valid.
    pub fn release(&mut self) {
        while self.rx.out > 0 {
            let slot = self.rx.at(self.rx.oldest());
            self.set_status(slot, STATUS_KERNEL);
            self.rx.out -= 1;
        }
    }

    /// Returns the number of frames that can be reserved before the next flush.
    pub fn free_frames(&mut self) -> usize {
        while self.tx.out > 0 {
            let status = self.status(self.tx.at(self.tx.oldest()));
            if status & (STATUS_SEND_REQUEST | STATUS_SENDING) != 0 {
                break;
            }
            self.tx.out -= 1;
        }
        self.tx.slots - self.tx.out
    }

    /// Reserves a slot for a frame of `bytes`, vnet header included. The caller fills and then
    /// commits it. `None` if the ring is full, or the frame is too long for a slot.
    pub fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.tx.slot_bytes - TX_DATA_AT {
            return None;
        }
        if self.tx.out == self.tx.slots && self.free_frames() == 0 {
            return None;
        }
        let slot = self.tx.at(self.tx.next);
        // SAFETY: the place is inside the mapping and the bytes are inside the place; the kernel
        // does not touch it before it is committed, and the slice borrows `self` until then.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.memory.as_ptr().add(slot + TX_DATA_AT), bytes)
        })
    }

    /// Marks the frame that was reserved last, of `bytes`, to be sent by the next flush.
    pub fn commit(&mut self, bytes: usize) {
        let slot = self.tx.at(self.tx.next);
        let len = self.memory.atomic_u32(slot + LEN_AT);
        len.store(bytes as u32, Ordering::Relaxed);
        self.set_status(slot, STATUS_SEND_REQUEST);
        self.tx.advance();
    }

    /// Asks the kernel to send the committed frames. Returns false if it did not take all of them;
    /// the caller then tries again a little later.
    ///
    /// # Errors
    /// The kernel's refusal, such as `ENETDOWN`; the frames stay in the ring.
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.tx.out == 0 {
            return Ok(true);
        }
        // An interface that was down may have left an old error on the socket, so the first error
        // is ignored.
        self.send_all().or_else(|_| self.send_all())
    }

    fn send_all(&mut self) -> io::Result<bool> {
        // SAFETY: no data is passed; the kernel reads the ring.
        let result = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let fd = self.fd.as_raw_fd();
            libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0)
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            let is_passing = matches!(
                error.raw_os_error(),
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR)
            );
            return if is_passing { Ok(false) } else { Err(error) };
        }
        let last = (self.tx.next + self.tx.slots - 1) % self.tx.slots;
        Ok(self.status(self.tx.at(last)) & STATUS_SEND_REQUEST == 0)
    }

    /// Removes the committed frames that were not sent. Returns how many there were.
    pub fn discard(&mut self) -> usize {
        let mut discarded = 0;
        while self.tx.out > 0 {
            let last = (self.tx.next + self.tx.slots - 1) % self.tx.slots;
            let slot = self.tx.at(last);
            if self.status(slot) & STATUS_SEND_REQUEST == 0 {
                break;
            }
            self.set_status(slot, STATUS_AVAILABLE);
            self.tx.next = last;
            self.tx.out -= 1;
            discarded += 1;
        }
        discarded
    }

    /// Returns the number of frames since the last call that the kernel dropped because the receive
    /// ring was full.
    #[must_use]
    pub fn take_missed(&self) -> u32 {
        let mut stats = [0u32; 2];
        let mut bytes = size_of_val(&stats) as libc::socklen_t;
        // SAFETY: both pointers are to locals of the sizes given.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                stats.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        if result == 0 { stats[1] } else { 0 }
    }
}

impl AsFd for PacketSocket {
    /// The descriptor is readable when a frame has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Longest frame that a kernel creates for segmentation, headers included, in bytes.
const LONG_BYTES_MAX: usize = 66_000;
/// Offset of a frame to send in its slot.
const TX_DATA_AT: usize = 32;

const LEN_AT: usize = 4;
const CAPTURED_AT: usize = 8;
const MAC_AT: usize = 12;
const TAG_AT: usize = 24;
const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_COPY: u32 = 1 << 1;
const STATUS_TAG_VALID: u32 = 1 << 4;
const STATUS_TAG_ETHERTYPE_VALID: u32 = 1 << 6;
const STATUS_AVAILABLE: u32 = 0;
const STATUS_SEND_REQUEST: u32 = 1;
const STATUS_SENDING: u32 = 2;
