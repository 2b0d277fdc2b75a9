//! Opening of a packet socket: its options, its rings, its interface.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use carina_sys::Mapping;

use super::PacketSocket;
use super::ring::{Layout, Ring};
use crate::bpf::Filter;
use crate::error::NetdevError;
use crate::interface::Interface;

impl PacketSocket {
    /// Opens a socket for the frames that `filter` passes; without a filter, for all frames. The
    /// socket does not receive frames that this system sends.
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
        let what = || format!("opening a socket for the frames of {}", interface.name);
        if fd < 0 {
            return Err(NetdevError::last(what(), "CAP_NET_RAW"));
        }
        // SAFETY: the kernel has just made this descriptor; nothing else owns it.
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
        // The kernel skips a frame that the device refuses. Without this option it would stop the
        // ring.
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
            let bytes = layout.rx_bytes.max(RCVBUF_MIN) as libc::c_int;
            if set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
                set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
            }
        }
        // Frames in transit count against the send buffer, which is small by default. Without
        // CAP_NET_ADMIN the system's limit applies, and bursts are shorter.
        let bytes = layout.tx_bytes.max(SNDBUF_MIN) as libc::c_int;
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

    /// Attaches the socket to `interface`, e.g. after the interface was created again.
    ///
    /// # Errors
    /// The kernel's refusal, usually because the interface has disappeared.
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

    /// Also receives frames for other stations, and of VLANs that a network card would filter out,
    /// as long as the socket exists.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn be_promiscuous(&self, interface: &Interface) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid `packet_mreq`.
        let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
        request.mr_ifindex = interface.index as i32;
        request.mr_type = libc::PACKET_MR_PROMISC as u16;
        let option = libc::PACKET_ADD_MEMBERSHIP;
        set(&self.fd, libc::SOL_PACKET, option, &request)
    }

    /// Maps the rings a second time, behind one page, for views of received frames at
    /// [`Received::at`](super::Received::at). Such a view is valid until [`PacketSocket::release`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn map_again(&self) -> io::Result<Mapping> {
        Mapping::behind_page(self.fd.as_fd(), self.layout.rx_bytes + self.layout.tx_bytes)
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

/// The kernel allocates rings in blocks of this size, or of one slot if a slot is larger.
const BLOCK_BYTES: usize = 64 << 10;

/// Lowest limit of the long frames that wait outside the receive ring, in bytes. The kernel
/// allocates memory only for frames that wait.
const RCVBUF_MIN: usize = 4 << 20;
/// Lowest limit of the frames that are being sent, in bytes.
const SNDBUF_MIN: usize = 2 << 20;

const TPACKET_V2: libc::c_int = 1;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
