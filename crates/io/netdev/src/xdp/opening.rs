//! Opening of an AF_XDP socket: its memory, its rings, its interface, its program.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use carina_sys::Mapping;

use super::program::{Program, QUEUES_MAX};
use super::ring::{CHUNK_ENTRY, FRAME_ENTRY, Ring};
use super::{CHUNK_BYTES, CHUNKS, RX_CHUNKS, TX_CHUNKS, XdpMode, XdpSocket};
use crate::error::NetdevError;
use crate::interface::Interface;

impl XdpSocket {
    /// Opens a socket for the frames of one queue of an interface, in the fastest mode that the
    /// interface supports.
    ///
    /// # Errors
    /// [`NetdevError::NotPermitted`] without `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`; the
    /// interface has no such queue, or another program is attached to it.
    pub fn open(interface: &Interface, queue: u32) -> Result<XdpSocket, NetdevError> {
        let what = || format!("opening queue {queue} of {} with AF_XDP", interface.name);
        let refused = |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => NetdevError::NotPermitted {
                what: what(),
                capability: "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF",
            },
            Some(libc::EBUSY | libc::EEXIST) => NetdevError::System {
                what: format!("{}; another program or socket uses the queue", what()),
                source,
            },
            Some(libc::EINVAL) => NetdevError::System {
                what: format!("{}; check that the interface has this queue", what()),
                source,
            },
            _ => NetdevError::System {
                what: what(),
                source,
            },
        };
        // The generic mode is slower, but works with every driver.
        let native = Self::with(interface, queue, true);
        native
            .or_else(|_| Self::with(interface, queue, false))
            .map_err(refused)
    }

    fn with(interface: &Interface, queue: u32, is_native: bool) -> io::Result<XdpSocket> {
        if queue >= QUEUES_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (memory, _) = Mapping::private((CHUNKS * CHUNK_BYTES) as usize)?;
        // SAFETY: all-zero bytes are a valid `xdp_umem_reg`.
        let mut umem: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        umem.addr = memory.as_ptr().addr() as u64;
        umem.len = CHUNKS * CHUNK_BYTES;
        umem.chunk_size = CHUNK_BYTES as u32;
        set(&fd, libc::XDP_UMEM_REG, &umem)?;
        let (rx, tx) = (RX_CHUNKS as u32, TX_CHUNKS as u32);
        set(&fd, libc::XDP_UMEM_FILL_RING, &rx)?;
        set(&fd, libc::XDP_UMEM_COMPLETION_RING, &tx)?;
        set(&fd, libc::XDP_RX_RING, &rx)?;
        set(&fd, libc::XDP_TX_RING, &tx)?;
        // Without this option the kernel takes 32 frames in each call.
        let _ = set(&fd, XDP_MAX_TX_SKB_BUDGET, &TX_BUDGET);
        // SAFETY: all-zero bytes are valid `xdp_mmap_offsets`.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let map = |at, offsets, size, entry, is_producer| {
            Ring::map(fd.as_fd(), at, offsets, size, entry, is_producer)
        };
        let mut fill = map(FILL_AT, &offsets.fr, rx, CHUNK_ENTRY, true)?;
        let completion = map(COMPLETION_AT, &offsets.cr, tx, CHUNK_ENTRY, false)?;
        let rx = map(RX_AT, &offsets.rx, rx, FRAME_ENTRY, false)?;
        let tx = map(TX_AT, &offsets.tx, tx, FRAME_ENTRY, true)?;
        for chunk in 0..RX_CHUNKS {
            fill.put_chunk(chunk * CHUNK_BYTES);
        }
        fill.publish();
        let program = Program::attach(interface.index, is_native)?;
        bind(&fd, interface.index, queue, is_native)?;
        program.direct(queue, &fd)?;
        let mut options = libc::xdp_options { flags: 0 };
        get(&fd, libc::XDP_OPTIONS, &mut options)?;
        let mode = if options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0 {
            XdpMode::ZeroCopy
        } else if is_native {
            XdpMode::Native
        } else {
            XdpMode::Generic
        };
        Ok(XdpSocket {
            _program: program,
            fd,
            fill,
            completion,
            rx,
            tx,
            free: (RX_CHUNKS..CHUNKS)
                .map(|chunk| chunk * CHUNK_BYTES)
                .collect(),
            taken: Vec::with_capacity(RX_CHUNKS as usize),
            reserved: None,
            mode,
            memory,
        })
    }
}

fn bind(fd: &OwnedFd, interface: u32, queue: u32, is_native: bool) -> io::Result<()> {
    // By default the kernel uses zero copy if the driver supports it, and copies otherwise.
    let copy = if is_native { 0 } else { libc::XDP_COPY };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: copy | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a local of the size given.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (at, bytes) = (std::ptr::from_ref(value).cast(), size_of::<T>());
    // SAFETY: the value is valid for its size, and the kernel only reads it.
    let result = unsafe {
        let fd = fd.as_raw_fd();
        libc::setsockopt(fd, libc::SOL_XDP, option, at, bytes as libc::socklen_t)
    };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get<T>(fd: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    let at = std::ptr::from_mut(value).cast();
    // SAFETY: the value is valid for its size, which the kernel does not exceed; it is a structure
    // of numbers, valid with any content.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, at, &raw mut bytes) };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const RX_AT: u64 = 0;
const TX_AT: u64 = 0x8000_0000;
const FILL_AT: u64 = 0x1_0000_0000;
const COMPLETION_AT: u64 = 0x1_8000_0000;

/// Linux 6.17, `include/uapi/linux/if_xdp.h`.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Largest number of frames that one call sends: more than a burst.
const TX_BUDGET: u32 = 256;
