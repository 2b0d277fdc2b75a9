//! Network interfaces whose frames or packets this process reads and writes: TAP carries frames,
//! TUN packets.
//!
//! A TAP device has no ring: each frame is one read or one write. A
//! [`VnetHeader`](crate::VnetHeader) precedes each frame, by which a side can leave checksums and
//! segmentation to the other side. A burst of reads or writes is one system call if the kernel has
//! and permits io_uring; otherwise each frame is a call.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::NetdevError;
use crate::interface::check_interface_name;
use crate::packet::VNET_HEADER_BYTES;
use crate::steering;
use crate::submission::{Direction, Part, Submissions};

/// Whether a device carries Ethernet frames or IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapLayer {
    /// Ethernet frames (TAP).
    Ethernet,
    /// IP packets (TUN).
    Ip,
}

/// The work that the kernel may leave to this process for packets that the kernel sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapOffload {
    /// Whether the kernel may leave checksums of TCP and UDP to this process.
    pub checksum: bool,
    /// Whether the kernel may leave the segmentation of TCP to this process; requires `checksum`.
    /// This process then reads TCP packets of up to 64 KiB.
    pub segmentation: bool,
    /// Whether the kernel may leave the segmentation of UDP (USO) to this process; requires
    /// `checksum` and Linux 6.2. This process then reads packets of up to 64 KiB with several
    /// datagrams. Stays off where the kernel does not have it.
    pub datagrams: bool,
}

/// A TAP or TUN device: a network interface whose packets this process reads and writes.
#[derive(Debug)]
pub struct Tap {
    file: File,
    /// The io_uring queues, if the kernel offers them.
    submissions: Option<Submissions>,
    /// The results of the last burst, if it does not.
    results: Vec<i32>,
    name: String,
    layer: TapLayer,
    offload: TapOffload,
    /// Flags for a device of several queues, which the request to attach has in addition to its
    /// usual flags; 0 for a device of one queue.
    flags: libc::c_int,
}

impl Tap {
    /// Attaches to the device of this name, or creates it. A device that this call creates
    /// disappears when the value is dropped.
    ///
    /// # Errors
    /// The name is too long, the kernel has no such devices, `CAP_NET_ADMIN` is missing, the name
    /// belongs to another kind of interface, or another process is attached.
    pub fn open(name: &str, layer: TapLayer, offload: TapOffload) -> Result<Tap, NetdevError> {
        Tap::open_with(name, layer, offload, 0)
    }

    /// Creates a device of `count` queues, of which each has the packets of some connections. With
    /// one queue, the call does the same as [`Tap::open`]; with more, no device of this name may
    /// exist. [`Tap::steer_by_flow`] decides which packets are in which queue.
    ///
    /// # Errors
    /// As for [`Tap::open`]; or a device of this name exists.
    pub fn open_queues(
        name: &str,
        layer: TapLayer,
        offload: TapOffload,
        count: usize,
    ) -> Result<Vec<Tap>, NetdevError> {
        if count <= 1 {
            return Tap::open(name, layer, offload).map(|tap| vec![tap]);
        }
        // Without this flag, the call would take queues of a device of another process.
        let flags = |n: usize| if n == 0 { libc::IFF_TUN_EXCL } else { 0 };
        let queue = |n| Tap::open_with(name, layer, offload, libc::IFF_MULTI_QUEUE | flags(n));
        (0..count).map(queue).collect()
    }

    /// Has the kernel choose the queue of a packet by its addresses and ports, so that packets of
    /// one connection stay in one queue. Without this call, the kernel moves a connection to the
    /// queue by which a packet in the other direction was written last.
    ///
    /// # Errors
    /// The kernel does not permit BPF programs to this process.
    pub fn steer_by_flow(&self) -> io::Result<()> {
        steering::steer_by_flow(self.file.as_fd())
    }

    fn open_with(
        name: &str,
        layer: TapLayer,
        offload: TapOffload,
        flags: libc::c_int,
    ) -> Result<Tap, NetdevError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options.open(DEVICE).map_err(|source| {
            let what = format!("opening {DEVICE} (the kernel's module tun)");
            NetdevError::of_device(what, source)
        })?;
        let mut tap = Tap {
            file,
            submissions: None,
            results: Vec::with_capacity(TAP_BURST),
            name: name.to_owned(),
            layer,
            offload,
            flags,
        };
        tap.attach()?;
        let submissions = Submissions::new(TAP_BURST as u32).and_then(|mut submissions| {
            submissions.try_on(tap.file.as_fd())?;
            Ok(submissions)
        });
        // Without io_uring, each frame is a call of its own.
        tap.submissions = submissions.ok();
        Ok(tap)
    }

    /// Attaches again, or creates the device again, after the interface was removed.
    ///
    /// # Errors
    /// As for [`Tap::open`].
    pub fn attach(&mut self) -> Result<(), NetdevError> {
        check_interface_name(&self.name)?;
        let (flag, kind) = match self.layer {
            TapLayer::Ethernet => (libc::IFF_TAP, "tap"),
            TapLayer::Ip => (libc::IFF_TUN, "tun"),
        };
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = flag | libc::IFF_NO_PI | libc::IFF_VNET_HDR | self.flags;
        request.ifr_ifru.ifru_flags = flags as _;
        let fd = self.file.as_raw_fd();
        // SAFETY: the request is a local `ifreq`, whose name ends in a zero byte.
        if unsafe { libc::ioctl(fd, libc::TUNSETIFF as _, &raw mut request) } < 0 {
            let source = io::Error::last_os_error();
            let reason = match source.raw_os_error() {
                Some(libc::EBUSY) if self.flags == 0 => {
                    "; another process is attached to it; choose another name"
                }
                Some(libc::EBUSY) => "; it exists, and has no queue for another process",
                Some(libc::EINVAL) => "; an interface of this name exists and is of another kind",
                _ => "",
            };
            let what = format!("the {kind} device {}{reason}", self.name);
            return Err(NetdevError::of_device(what, source));
        }
        if self.offload.datagrams {
            match self.set_offload() {
                // The kernel does not know the flags of a later version.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.offload.datagrams = false;
                }
                done => return done.map_err(|error| self.refused_offload(error)),
            }
        }
        self.set_offload()
            .map_err(|error| self.refused_offload(error))
    }

    fn refused_offload(&self, source: io::Error) -> NetdevError {
        let what = format!("setting the offloads of the device {}", self.name);
        NetdevError::of_device(what, source)
    }

    fn set_offload(&self) -> io::Result<()> {
        let mut flags = 0;
        if self.offload.checksum {
            flags |= libc::TUN_F_CSUM;
        }
        if self.offload.segmentation {
            flags |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        }
        if self.offload.datagrams {
            flags |= libc::TUN_F_USO4 | libc::TUN_F_USO6;
        }
        let (fd, flags) = (self.file.as_raw_fd(), libc::c_ulong::from(flags));
        // SAFETY: the argument of this request is a number.
        match unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD as _, flags) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the work that the kernel leaves to this process: what [`Tap::open`] asked for, as
    /// far as the kernel has it.
    #[must_use]
    pub fn offload(&self) -> TapOffload {
        self.offload
    }

    /// Whether the device exists and this process is attached to it, even if the interface was
    /// moved to another network namespace. False if the interface was removed.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let fd = self.file.as_raw_fd();
        // SAFETY: the request is a local `ifreq`, which the kernel fills in.
        unsafe { libc::ioctl(fd, libc::TUNGETIFF as _, &raw mut request) >= 0 }
    }

    /// Returns the open file of the device, so that the caller can pass the device to another
    /// process.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.file.into()
    }

    /// Returns the name of the device's network interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether one system call moves a whole burst of frames. If false, each frame takes a system
    /// call.
    #[must_use]
    pub fn takes_bursts(&self) -> bool {
        self.submissions.is_some()
    }

    /// Reads up to [`TAP_BURST`] frames, each with its header, in order. Returns the outcome for
    /// each buffer. A frame that is longer than its buffer is truncated. If a frame arrives during
    /// the call, it may be in a buffer behind others that got none ([`TapResult::Later`]).
    pub fn read<'a>(
        &mut self,
        into: impl Iterator<Item = (&'a mut [u8; VNET_HEADER_BYTES], &'a mut [u8])>,
    ) -> impl Iterator<Item = TapResult> {
        let results = match &mut self.submissions {
            Some(submissions) => {
                let parts = into.map(|(header, frame)| [Part::of_mut(header), Part::of_mut(frame)]);
                // SAFETY: buffers are borrowed for `'a`, which outlasts this call.
                unsafe { submissions.run(self.file.as_fd(), Direction::Read, parts) }
            }
            None => {
                self.results.clear();
                for (header, frame) in into.take(TAP_BURST) {
                    let mut parts = [IoSliceMut::new(header), IoSliceMut::new(frame)];
                    let result = number_of(self.file.read_vectored(&mut parts));
                    self.results.push(result);
                    if result < 0 {
                        break;
                    }
                }
                &self.results[..]
            }
        };
        results.iter().map(|result| TapResult::of(*result))
    }

    /// Writes up to [`TAP_BURST`] frames, each behind its header, in order. Returns for each frame
    /// whether the kernel accepted it.
    pub fn write<'a>(
        &mut self,
        from: impl Iterator<Item = (&'a [u8; VNET_HEADER_BYTES], &'a [u8])>,
    ) -> impl Iterator<Item = TapResult> {
        let results = match &mut self.submissions {
            Some(submissions) => {
                let parts = from.map(|(header, frame)| [Part::of(header), Part::of(frame)]);
                // SAFETY: as in `read`.
                unsafe { submissions.run(self.file.as_fd(), Direction::Write, parts) }
            }
            None => {
                self.results.clear();
                for (header, frame) in from.take(TAP_BURST) {
                    let parts = [IoSlice::new(header), IoSlice::new(frame)];
                    self.results
                        .push(number_of(self.file.write_vectored(&parts)));
                }
                &self.results[..]
            }
        };
        results.iter().map(|result| TapResult::of(*result))
    }
}

/// The outcome of reading or writing one frame of a TAP device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapResult {
    /// The frame was read or written; its length in bytes, without the header.
    Done(usize),
    /// No frame waits to be read, or the kernel cannot accept a frame at this moment.
    Later,
    /// The interface is down.
    Down,
    /// The interface was removed.
    Gone,
    /// The header does not match the frame, or the kernel refused for another reason.
    Refused,
}

impl TapResult {
    /// The outcome for a result: a number of bytes, or a negated error number.
    fn of(result: i32) -> TapResult {
        match result {
            0.. => TapResult::Done((result as usize).saturating_sub(VNET_HEADER_BYTES)),
            _ => match -result {
                libc::EAGAIN | libc::EINTR => TapResult::Later,
                libc::EIO => TapResult::Down,
                libc::EBADFD => TapResult::Gone,
                _ => TapResult::Refused,
            },
        }
    }
}

impl From<io::Result<usize>> for TapResult {
    /// The outcome of a read or write of the device's descriptor by the caller.
    fn from(result: io::Result<usize>) -> TapResult {
        TapResult::of(number_of(result))
    }
}

/// Converts a result to a number of bytes or a negated error number, as the kernel returns it.
fn number_of(result: io::Result<usize>) -> i32 {
    match result {
        Ok(bytes) => bytes.min(i32::MAX as usize) as i32,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EINVAL),
    }
}

/// Largest number of frames that one call reads or writes.
pub const TAP_BURST: usize = 128;

impl AsFd for Tap {
    /// The descriptor is readable when a frame waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const DEVICE: &str = "/dev/net/tun";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", "a/b", "tap%d", "a b", "a-name-that-is-too-long"] {
            let error = Tap::open(name, TapLayer::Ethernet, TapOffload::default()).unwrap_err();
            let is_expected = matches!(&error, NetdevError::Name(found) if found == name)
                || error.to_string().contains(DEVICE);
            assert!(is_expected, "{error}");
        }
    }
}
