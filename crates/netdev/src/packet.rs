//! Whole frames through memory that is shared with the kernel (AF_PACKET, TPACKET_V2).
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
//! Version 2 and not 3: with version 3 the kernel hands over blocks of frames, and a block that is
//! not full only after a timeout of at least a millisecond, which would be the round-trip time of
//! every quiet network. With version 2 a frame can be read as soon as it is there; its slots have
//! one size, which for frames of one MTU costs nothing.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use carina_sys::Mapping;

use crate::bpf::Filter;
use crate::error::NetdevError;
use crate::interface::Interface;

/// What the rings of a socket are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Longest frame that is received or sent, MAC header and VLAN tag included, in bytes.
    pub frame_bytes_max: usize,
    /// Memory of the receive ring, in bytes: a power of two, at least 64 KiB.
    pub rx_bytes: usize,
    /// Memory of the send ring, in bytes: a power of two, at least 64 KiB.
    pub tx_bytes: usize,
    /// Frames carry what the kernel has left to the hardware ([`VNET_HEADER_BYTES`] in front of
    /// each, see `virtio_net_hdr`): segmentation and checksums.
    pub has_vnet_header: bool,
    /// Frames longer than `frame_bytes_max`, up to 64 KiB, are received whole, at the cost of a
    /// system call for each.
    pub takes_long: bool,
}

impl Layout {
    /// Rings for frames of an interface.
    #[must_use]
    pub fn for_mtu(mtu: usize) -> Layout {
        Layout {
            frame_bytes_max: mtu + MAC_HEADER_BYTES + TAG_BYTES,
            rx_bytes: 4 << 20,
            tx_bytes: 2 << 20,
            has_vnet_header: false,
            takes_long: false,
        }
    }

    /// Bytes of one place in a ring: a power of two, so that places fill blocks without rest.
    fn slot_bytes(&self) -> usize {
        let vnet = if self.has_vnet_header {
            VNET_HEADER_BYTES
        } else {
            0
        };
        (RX_HEADER_BYTES_MAX + vnet + self.frame_bytes_max).next_power_of_two()
    }
}

/// A VLAN tag that the kernel has taken out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Priority, drop eligibility and VLAN id.
    pub control: u16,
    /// The Ethertype that the tag had in the frame, 0x8100 for IEEE 802.1Q.
    pub ethertype: u16,
}

/// A received frame, which stays until [`PacketSocket::release`].
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The frame from its destination address on, without what `tag` tells.
    pub frame: &'a [u8],
    /// The tag, when there was one.
    pub tag: Option<Tag>,
    /// The header that tells what is left to do; empty without `has_vnet_header`.
    pub vnet_header: &'a [u8],
    /// The frame was longer than the ring's places and has been cut.
    pub is_cut: bool,
    /// Where the frame begins in the receive ring.
    pub at: usize,
}

/// A socket for the frames of one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    memory: Mapping,
    layout: Layout,
    rx: Ring,
    tx: Ring,
    /// The last frame that did not fit into its place.
    long: Vec<u8>,
}

#[derive(Debug)]
struct Ring {
    /// Where it begins in the mapping.
    start: usize,
    slot_bytes: usize,
    slots: usize,
    /// The place to be used next.
    next: usize,
    /// Places before `next` that are out: taken and not released, or filled and not sent.
    out: usize,
}

impl Ring {
    fn at(&self, slot: usize) -> usize {
        self.start + slot * self.slot_bytes
    }

    fn oldest(&self) -> usize {
        (self.next + self.slots - self.out) % self.slots
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % self.slots;
        self.out += 1;
    }
}

impl PacketSocket {
    /// Opens a socket for the frames that `filter` passes; without one, all frames. Frames that
    /// this system sends are not received.
    ///
    /// # Errors
    /// [`NetdevError::NotPermitted`] without `CAP_NET_RAW`; the kernel's refusal.
    pub fn open(
        interface: &Interface,
        layout: Layout,
        filter: Option<&Filter>,
    ) -> Result<PacketSocket, NetdevError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0 receives nothing: nothing unfiltered is in the ring when it is bound.
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        let what = || format!("a socket for frames of {}", interface.name);
        if fd < 0 {
            return Err(NetdevError::last(what(), "CAP_NET_RAW"));
        }
        // SAFETY: the kernel has just given this descriptor to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let made = Self::set_up(&fd, layout, filter).and_then(|()| {
            let (rx, tx) = (layout.rx_bytes, layout.tx_bytes);
            Mapping::shared(fd.as_fd(), 0, rx + tx)
        });
        let memory = made.map_err(|error| NetdevError::from_io(what(), "CAP_NET_RAW", error))?;
        let slot_bytes = layout.slot_bytes();
        let ring = |start, bytes: usize| Ring {
            start,
            slot_bytes,
            slots: bytes / slot_bytes,
            next: 0,
            out: 0,
        };
        let socket = PacketSocket {
            fd,
            memory,
            layout,
            rx: ring(0, layout.rx_bytes),
            tx: ring(layout.rx_bytes, layout.tx_bytes),
            long: Vec::new(),
        };
        socket.bind(interface)?;
        Ok(socket)
    }

    fn set_up(fd: &OwnedFd, layout: Layout, filter: Option<&Filter>) -> io::Result<()> {
        set_int(fd, libc::SOL_PACKET, libc::PACKET_VERSION, TPACKET_V2)?;
        set_int(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        // A frame that the device refuses is passed over; without this it would stop the ring.
        set_int(fd, libc::SOL_PACKET, libc::PACKET_LOSS, 1)?;
        if layout.has_vnet_header {
            set_int(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        }
        if let Some(filter) = filter {
            let program = libc::sock_fprog {
                len: filter.program.len() as u16,
                filter: filter.program.as_ptr().cast_mut(),
            };
            set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        }
        if layout.takes_long {
            set_int(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
            let bytes = layout.rx_bytes as libc::c_int;
            if set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
                set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
            }
        }
        // What is on its way counts against the send buffer, which is small by default. Without
        // CAP_NET_ADMIN the system's limit applies and bursts are shorter.
        let bytes = layout.tx_bytes as libc::c_int;
        if set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes).is_err() {
            set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
        }
        let slot_bytes = layout.slot_bytes();
        for (option, bytes) in [
            (libc::PACKET_RX_RING, layout.rx_bytes),
            (libc::PACKET_TX_RING, layout.tx_bytes),
        ] {
            let block_bytes = slot_bytes.max(BLOCK_BYTES).min(bytes);
            let request = RingRequest {
                block_bytes: block_bytes as u32,
                blocks: (bytes / block_bytes) as u32,
                slot_bytes: slot_bytes as u32,
                slots: (bytes / slot_bytes) as u32,
            };
            set(fd, libc::SOL_PACKET, option, &request)?;
        }
        Ok(())
    }

    /// Receives from `interface` from here on, and sends there: for an interface that has been made
    /// anew.
    ///
    /// # Errors
    /// The kernel's refusal, usually that the interface is gone.
    pub fn bind(&self, interface: &Interface) -> Result<(), NetdevError> {
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = interface.index as i32;
        let bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is a local of the size given.
        let result = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), bytes) };
        if result < 0 {
            let what = format!("frames of {}", interface.name);
            return Err(NetdevError::last(what, "CAP_NET_RAW"));
        }
        Ok(())
    }

    /// Takes frames for other stations as well, and of VLANs that a network card would filter out,
    /// as long as the socket lives.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn be_promiscuous(&self, interface: &Interface) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid `packet_mreq`.
        let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
        request.mr_ifindex = interface.index as i32;
        request.mr_type = libc::PACKET_MR_PROMISC as u16;
        let option = libc::PACKET_ADD_MEMBERSHIP;
        set(&self.fd, libc::SOL_PACKET, option, &request)
    }

    /// A second mapping of the rings, behind one page, for views of received frames at
    /// [`Received::at`] that last until [`PacketSocket::release`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn map_again(&self) -> io::Result<Mapping> {
        Mapping::behind_page(self.fd.as_fd(), self.layout.rx_bytes + self.layout.tx_bytes)
    }

    /// Bytes of the receive ring, which begins the mapping.
    #[must_use]
    pub fn rx_bytes(&self) -> usize {
        self.layout.rx_bytes
    }

    /// Longest frame that fits.
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

    /// The next frame, when one is there.
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
        // The kernel keeps to this; what it says is checked all the same.
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

    /// Takes the frame at the front of the socket's queue, where those lie that fit into no place.
    fn take_long(&mut self) -> &[u8] {
        self.long.resize(LONG_BYTES_MAX, 0);
        let (to, bytes) = (self.long.as_mut_ptr().cast(), self.long.len());
        // SAFETY: the buffer has that many bytes.
        let got = unsafe { libc::recv(self.fd.as_raw_fd(), to, bytes, libc::MSG_DONTWAIT) };
        self.long.truncate(usize::try_from(got).unwrap_or(0));
        &self.long
    }

    /// Whether [`PacketSocket::receive`] would find a frame.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        let slot = self.rx.at(self.rx.next);
        self.rx.out < self.rx.slots && self.status(slot) & STATUS_USER != 0
    }

    /// Gives the places of all frames taken back to the kernel.
    pub fn release(&mut self) {
        while self.rx.out > 0 {
            let slot = self.rx.at(self.rx.oldest());
            self.set_status(slot, STATUS_KERNEL);
            self.rx.out -= 1;
        }
    }

    /// Frames that can be filled before the next flush.
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

    /// A place for a frame of `bytes`, vnet header included, to be filled and then committed.
    /// `None` when the ring is full or the frame too long for it.
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

    /// Hands the frame in the place reserved last to the next flush.
    pub fn commit(&mut self, bytes: usize) {
        let slot = self.tx.at(self.tx.next);
        let len = self.memory.atomic_u32(slot + LEN_AT);
        len.store(bytes as u32, Ordering::Relaxed);
        self.set_status(slot, STATUS_SEND_REQUEST);
        self.tx.advance();
    }

    /// Has the kernel send what was committed. False when it did not take all of it: then call
    /// again a little later.
    ///
    /// # Errors
    /// The kernel's refusal, such as `ENETDOWN`; the frames stay.
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.tx.out == 0 {
            return Ok(true);
        }
        // An interface that was down has left an error behind, which says nothing of now.
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

    /// Takes back what was committed and not sent; returns how many frames that were.
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

    /// Frames that the kernel could not put into the receive ring since the last call.
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
    /// Readable when a frame has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Layout {
    fn vnet_bytes(&self) -> usize {
        if self.has_vnet_header {
            VNET_HEADER_BYTES
        } else {
            0
        }
    }
}

fn set_int(fd: &OwnedFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    set(fd, level, option, &value)
}

fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is valid for its size, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            bytes,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `struct tpacket_req`.
#[repr(C)]
struct RingRequest {
    block_bytes: u32,
    blocks: u32,
    slot_bytes: u32,
    slots: u32,
}

/// Bytes of a MAC header: two addresses and an Ethertype.
pub const MAC_HEADER_BYTES: usize = 14;
/// Bytes of a VLAN tag.
pub const TAG_BYTES: usize = 4;
/// Bytes of a `virtio_net_hdr`.
pub const VNET_HEADER_BYTES: usize = 10;

/// What the kernel may put before a frame in a place of the receive ring: the header of the place
/// and the address of the frame, aligned, with room for an aligned MAC header.
const RX_HEADER_BYTES_MAX: usize = 96;
/// The longest frame that a kernel makes for segmentation, with its headers.
const LONG_BYTES_MAX: usize = 66_000;
/// Where a frame to be sent begins in its place.
const TX_DATA_AT: usize = 32;
/// The kernel allocates rings in blocks of this size, or of one place when that is larger.
const BLOCK_BYTES: usize = 64 << 10;

const TPACKET_V2: libc::c_int = 1;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
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
