//! The devices by which a program uses Xen: grants of memory and event channels.
//!
//! Linux's headers `xen/gntalloc.h`, `xen/gntdev.h` and `xen/evtchn.h` define the ioctl requests. A
//! *grant* lets one other domain map a page; a *grant reference* is its number. An *event channel*
//! is a doorbell between two domains; each side knows it by a *port*.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Number of a Xen domain, from 0 (Dom0) to 32751.
pub type XenDomain = u16;

/// A grant that another domain gave to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XenGrant {
    /// The domain whose page it is.
    pub domain: XenDomain,
    /// The grant reference, a number of that domain.
    pub reference: u32,
}

/// What the kernel does when pages are unmapped or a process ends, whatever the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XenUnmapNotice {
    /// The byte to set to 0, counted from the start of the device's file.
    pub byte: u64,
    /// The local port of the event channel to ring.
    pub port: u32,
}

/// Pages of this domain that one other domain may map: `/dev/xen/gntalloc`. When it and all its
/// mappings are dropped, the kernel takes the grants back.
#[derive(Debug)]
pub struct XenGrantedPages {
    file: File,
    references: Vec<u32>,
    index: u64,
}

impl XenGrantedPages {
    /// Allocates `pages` pages of zeros that `domain` may map, readable and writable.
    ///
    /// # Errors
    /// The device is missing (module `xen_gntalloc`), or the kernel refuses. `StorageFull`: the
    /// parameter `limit` of that module (default 1024 pages for all programs) is exceeded.
    pub fn allocate(domain: XenDomain, pages: u32) -> io::Result<Self> {
        let file = open(GNTALLOC)?;
        let mut request = vec![0_u32; 4 + (pages as usize).max(2)];
        request[0] = u32::from(domain) | FLAG_WRITABLE << 16;
        request[1] = pages;
        // SAFETY: the kernel reads 16 bytes and writes them and one word per page, for which the
        // vector has room.
        unsafe { control(&file, ALLOC_GREF, request.as_mut_ptr().cast()) }?;
        let index = u64::from(request[2]) | u64::from(request[3]) << 32;
        let references = request[4..4 + pages as usize].to_vec();
        Ok(Self {
            file,
            references,
            index,
        })
    }

    /// The grant references of the pages, in order.
    #[must_use]
    pub fn references(&self) -> &[u32] {
        &self.references
    }

    /// The offset in the device's file at which the pages begin, for [`crate::Mapping`].
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.index
    }

    /// Sets what the kernel does when the page of `notice` is given back.
    ///
    /// # Errors
    /// The kernel knows neither the page nor the port.
    pub fn set_unmap_notice(&self, notice: XenUnmapNotice) -> io::Result<()> {
        set_unmap_notice(&self.file, notice)
    }
}

impl AsFd for XenGrantedPages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for XenGrantedPages {
    fn drop(&mut self) {
        let mut request = DeallocGref {
            index: self.index,
            count: self.references.len() as u32,
            pad: 0,
        };
        // A page that is still mapped stays until it is unmapped. The end of the process, too,
        // gives the pages back.
        // SAFETY: the kernel reads the 16 bytes of the structure.
        let _ = unsafe { control(&self.file, DEALLOC_GREF, (&raw mut request).cast()) };
    }
}

/// Pages that other domains have granted to this one: an open file of `/dev/xen/gntdev`. The file
/// contains the pages of [`XenForeignPages::take_up`], in that order. One [`crate::Mapping`] of the
/// file, from offset 0 and over all pages, maps them.
#[derive(Debug)]
pub struct XenForeignPages {
    file: File,
    index: u64,
    pages: usize,
}

impl XenForeignPages {
    /// Opens the device for the pages of `grants`, to be mapped in this order. If a grant occurs
    /// twice, its page is mapped at two places. The kernel asks Xen for the pages only when the
    /// file is mapped.
    ///
    /// # Errors
    /// The device is missing (module `xen_gntdev`), or the kernel refuses.
    pub fn take_up(grants: &[XenGrant]) -> io::Result<Self> {
        let file = open(GNTDEV)?;
        let mut request = vec![0_u32; 4];
        request[0] = u32::try_from(grants.len()).map_err(io::Error::other)?;
        for grant in grants {
            request.extend([u32::from(grant.domain), grant.reference]);
        }
        // SAFETY: the kernel reads 16 bytes and two words per grant, which the vector has, and
        // writes the 16 bytes.
        unsafe { control(&file, MAP_GRANT_REF, request.as_mut_ptr().cast()) }?;
        let index = u64::from(request[2]) | u64::from(request[3]) << 32;
        Ok(Self {
            file,
            index,
            pages: grants.len(),
        })
    }

    /// The offset in the device's file at which the pages begin, for [`crate::Mapping`].
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.index
    }

    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Sets what the kernel does when the page of `notice` is unmapped. The page must be mapped.
    ///
    /// # Errors
    /// The kernel knows neither the page nor the port.
    pub fn set_unmap_notice(&self, notice: XenUnmapNotice) -> io::Result<()> {
        set_unmap_notice(&self.file, notice)
    }
}

impl AsFd for XenForeignPages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for XenForeignPages {
    fn drop(&mut self) {
        let mut request = UnmapGrantRef {
            index: self.index,
            count: self.pages as u32,
            pad: 0,
        };
        // The pages stay mapped until the mapping is dropped, too.
        // SAFETY: the kernel reads the 16 bytes of the structure.
        let _ = unsafe { control(&self.file, UNMAP_GRANT_REF, (&raw mut request).cast()) };
    }
}

/// The event channels of this process: `/dev/xen/evtchn`. Its descriptor is readable while a
/// channel has rung.
#[derive(Debug)]
pub struct XenEventChannels {
    file: File,
}

impl XenEventChannels {
    /// Opens the device.
    ///
    /// # Errors
    /// The device is missing (module `xen_evtchn`), or the kernel refuses.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            file: open(EVTCHN)?,
        })
    }

    /// Makes a channel that `domain` may bind, and returns its local port.
    ///
    /// # Errors
    /// Xen refuses.
    pub fn offer_to(&self, domain: XenDomain) -> io::Result<u32> {
        let mut request = [u32::from(domain)];
        // SAFETY: the kernel reads one word.
        unsafe { control(&self.file, BIND_UNBOUND_PORT, request.as_mut_ptr().cast()) }
    }

    /// Binds a channel that `domain` offers as its port `remote`, and returns the local port.
    ///
    /// # Errors
    /// There is no such channel, or Xen refuses.
    pub fn bind_to(&self, domain: XenDomain, remote: u32) -> io::Result<u32> {
        let mut request = [u32::from(domain), remote];
        // SAFETY: the kernel reads two words.
        unsafe { control(&self.file, BIND_INTERDOMAIN, request.as_mut_ptr().cast()) }
    }

    /// Closes a channel of this process.
    ///
    /// # Errors
    /// The port is not one of this process.
    pub fn close(&self, port: u32) -> io::Result<()> {
        let mut request = [port];
        // SAFETY: the kernel reads one word.
        unsafe { control(&self.file, UNBIND, request.as_mut_ptr().cast()) }.map(drop)
    }

    /// Rings a channel. If the other side has closed it, nothing happens.
    ///
    /// # Errors
    /// The port is not one of this process.
    pub fn ring(&self, port: u32) -> io::Result<()> {
        let mut request = [port];
        // SAFETY: the kernel reads one word.
        unsafe { control(&self.file, NOTIFY, request.as_mut_ptr().cast()) }.map(drop)
    }

    /// Forgets the rings that have come, so that the descriptor is readable for new ones only. It
    /// does not block.
    pub fn clear(&self) {
        let mut ports = [0_u8; 256];
        // The device gives whole ports only, and each stays masked until it is written back.
        if let Ok(bytes) = rustix::io::read(&self.file, &mut ports) {
            let _ = rustix::io::write(&self.file, &ports[..bytes]);
        }
    }
}

impl AsFd for XenEventChannels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Whether this system is a Xen domain whose kernel has the three devices of programs.
#[must_use]
pub fn xen_devices_exist() -> bool {
    [GNTALLOC, EVTCHN, XENBUS]
        .iter()
        .all(|path| Path::new(path).exists())
}

/// Opens the connection to the xenstore through the kernel: `/dev/xen/xenbus`, non-blocking.
///
/// # Errors
/// The device is missing, because this system is no Xen domain; or the kernel refuses.
pub fn open_xenbus() -> io::Result<File> {
    open(XENBUS)
}

/// The requests of the two devices of grants for notices are equal.
fn set_unmap_notice(file: &File, notice: XenUnmapNotice) -> io::Result<()> {
    let mut request = UnmapNotify {
        index: notice.byte,
        action: NOTIFY_CLEAR_BYTE | NOTIFY_SEND_EVENT,
        port: notice.port,
    };
    // SAFETY: the kernel reads the 16 bytes of the structure.
    unsafe { control(file, SET_UNMAP_NOTIFY, (&raw mut request).cast()) }.map(drop)
}

fn open(path: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let opened = options.custom_flags(libc::O_NONBLOCK).open(path);
    opened.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

/// Sends a request to a device. Returns the number that the kernel answers.
///
/// # Safety
/// `argument` points to memory of the size and contents that the kernel expects for `request`.
unsafe fn control(file: &File, request: u32, argument: *mut libc::c_void) -> io::Result<u32> {
    // SAFETY: the caller vouches for the argument, and the descriptor is open.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// `struct ioctl_gntalloc_dealloc_gref`.
#[repr(C)]
struct DeallocGref {
    index: u64,
    count: u32,
    pad: u32,
}

/// `struct ioctl_gntdev_unmap_grant_ref`.
#[repr(C)]
struct UnmapGrantRef {
    index: u64,
    count: u32,
    pad: u32,
}

/// `struct ioctl_gntdev_unmap_notify`, and the one of gntalloc.
#[repr(C)]
struct UnmapNotify {
    index: u64,
    action: u32,
    port: u32,
}

const GNTALLOC: &str = "/dev/xen/gntalloc";
const GNTDEV: &str = "/dev/xen/gntdev";
const EVTCHN: &str = "/dev/xen/evtchn";
const XENBUS: &str = "/dev/xen/xenbus";

const FLAG_WRITABLE: u32 = 1;
const NOTIFY_CLEAR_BYTE: u32 = 1;
const NOTIFY_SEND_EVENT: u32 = 2;

/// `_IOC(_IOC_NONE, kind, number, bytes)` of Linux.
const fn request(kind: u8, number: u8, bytes: usize) -> u32 {
    number as u32 | (kind as u32) << 8 | (bytes as u32) << 16
}

const BIND_INTERDOMAIN: u32 = request(b'E', 1, 8);
const BIND_UNBOUND_PORT: u32 = request(b'E', 2, 4);
const UNBIND: u32 = request(b'E', 3, 4);
const NOTIFY: u32 = request(b'E', 4, 4);
const MAP_GRANT_REF: u32 = request(b'G', 0, 24);
const UNMAP_GRANT_REF: u32 = request(b'G', 1, size_of::<UnmapGrantRef>());
const ALLOC_GREF: u32 = request(b'G', 5, 24);
const DEALLOC_GREF: u32 = request(b'G', 6, size_of::<DeallocGref>());
const SET_UNMAP_NOTIFY: u32 = request(b'G', 7, size_of::<UnmapNotify>());

// The values that a C program prints which includes the headers of Linux 6.1.
const _: () = {
    assert!(BIND_INTERDOMAIN == 0x0008_4501);
    assert!(BIND_UNBOUND_PORT == 0x0004_4502);
    assert!(UNBIND == 0x0004_4503);
    assert!(NOTIFY == 0x0004_4504);
    assert!(MAP_GRANT_REF == 0x0018_4700);
    assert!(UNMAP_GRANT_REF == 0x0010_4701);
    assert!(ALLOC_GREF == 0x0018_4705);
    assert!(DEALLOC_GREF == 0x0010_4706);
    assert!(SET_UNMAP_NOTIFY == 0x0010_4707);
    assert!(size_of::<DeallocGref>() == 16);
    assert!(size_of::<UnmapGrantRef>() == 16);
    assert!(size_of::<UnmapNotify>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_devices_are_named() {
        if xen_devices_exist() {
            println!("SKIP: this system is a Xen domain");
            return;
        }
        let errors = [
            XenGrantedPages::allocate(0, 1).err(),
            XenForeignPages::take_up(&[]).err(),
            XenEventChannels::open().err(),
            open_xenbus().err(),
        ];
        for (error, path) in errors.into_iter().zip([GNTALLOC, GNTDEV, EVTCHN, XENBUS]) {
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(text.starts_with(path), "{text}");
        }
    }
}
