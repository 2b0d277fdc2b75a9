//! Interfaces that the kernel has and this process is behind: TAP carries frames, TUN packets.
//!
//! A TAP device has no ring: each frame is one `read` or one `write`. In front of it is a
//! [`VnetHeader`](crate::VnetHeader), by which checksums and segmentation can be left to the other
//! side.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::NetdevError;
use crate::packet::VNET_HEADER_BYTES;

/// What a device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapLayer {
    /// Ethernet frames (TAP).
    Ethernet,
    /// IP packets (TUN).
    Ip,
}

/// What the kernel may leave to this process to be done with what it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapOffload {
    /// Checksums of TCP and UDP.
    pub checksum: bool,
    /// Cutting of TCP; needs `checksum`. Packets of up to 64 KiB are read then.
    pub segmentation: bool,
}

/// A TAP or TUN device.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    layer: TapLayer,
    offload: TapOffload,
}

impl Tap {
    /// Attaches to the device of this name, or makes it. One that is made here goes with the value.
    ///
    /// # Errors
    /// The name is too long, the kernel has no such devices, `CAP_NET_ADMIN` is missing, the name
    /// belongs to another kind of interface or another process is attached.
    pub fn open(name: &str, layer: TapLayer, offload: TapOffload) -> Result<Tap, NetdevError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options.open(DEVICE).map_err(|source| {
            let what = format!("opening {DEVICE} (the kernel's module tun)");
            NetdevError::of_device(what, source)
        })?;
        let tap = Tap {
            file,
            name: name.to_owned(),
            layer,
            offload,
        };
        tap.attach()?;
        Ok(tap)
    }

    /// Attaches again, or makes the device again: when the interface was taken away.
    ///
    /// # Errors
    /// As of [`Tap::open`].
    pub fn attach(&self) -> Result<(), NetdevError> {
        let is_name = (1..libc::IFNAMSIZ).contains(&self.name.len())
            && !self
                .name
                .bytes()
                .any(|c| c == 0 || c == b'/' || c == b'%' || c.is_ascii_whitespace());
        if !is_name {
            return Err(NetdevError::Name(self.name.clone()));
        }
        let (flag, kind) = match self.layer {
            TapLayer::Ethernet => (libc::IFF_TAP, "tap"),
            TapLayer::Ip => (libc::IFF_TUN, "tun"),
        };
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (flag | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as _;
        let fd = self.file.as_raw_fd();
        // SAFETY: the request is a local `ifreq`, whose name ends in a zero byte.
        if unsafe { libc::ioctl(fd, libc::TUNSETIFF as _, &raw mut request) } < 0 {
            let source = io::Error::last_os_error();
            let reason = match source.raw_os_error() {
                Some(libc::EBUSY) => "; another process is attached to it",
                Some(libc::EINVAL) => "; there is an interface of this name and of another kind",
                _ => "",
            };
            let what = format!("the {kind} device {}{reason}", self.name);
            return Err(NetdevError::of_device(what, source));
        }
        let mut flags = 0;
        if self.offload.checksum {
            flags |= libc::TUN_F_CSUM;
        }
        if self.offload.segmentation {
            flags |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        }
        // SAFETY: the argument of this request is a number.
        if unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) } < 0 {
            let what = format!("offloads of the {kind} device {}", self.name);
            return Err(NetdevError::of_device(what, io::Error::last_os_error()));
        }
        Ok(())
    }

    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a frame and the header in front of it; `None` when no frame waits. A frame that is
    /// longer than `frame` is cut.
    ///
    /// # Errors
    /// `EBADFD` when the interface was taken away; other refusals of the kernel.
    pub fn read(
        &mut self,
        header: &mut [u8; VNET_HEADER_BYTES],
        frame: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(header), IoSliceMut::new(frame)];
        match self.file.read_vectored(&mut parts) {
            Ok(bytes) => Ok(Some(bytes.saturating_sub(VNET_HEADER_BYTES))),
            Err(error) if is_passing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a frame behind its header. False when the kernel takes no more now.
    ///
    /// # Errors
    /// `EBADFD` when the interface was taken away, `EIO` while it is down, `EINVAL` when header and
    /// frame do not fit together.
    pub fn write(&mut self, header: &[u8; VNET_HEADER_BYTES], frame: &[u8]) -> io::Result<bool> {
        let parts = [IoSlice::new(header), IoSlice::new(frame)];
        match self.file.write_vectored(&parts) {
            Ok(_) => Ok(true),
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether an error says that the interface is down.
    #[must_use]
    pub fn is_down(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::EIO)
    }

    /// Whether an error says that the interface was taken away.
    #[must_use]
    pub fn is_gone(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::EBADFD)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl AsFd for Tap {
    /// Readable when a frame waits.
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
