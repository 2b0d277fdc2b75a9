//! The event channels of a device, and how to end those that a restored domain has lost.
//!
//! `xl restore` makes a new domain, in which no event channel of a program exists. Linux 6.1 does
//! not know that: the device `/dev/xen/evtchn` keeps the ports that the program had. When the
//! program closes such a port, or its descriptor, the kernel looks for the interrupt of the port,
//! finds none, and stops the thread with a `BUG` (`evtchn_unbind_from_user` in
//! `drivers/xen/evtchn.c`). [`end_lost`] prevents this.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carina_sys::{XenDomain, XenEventChannels, XenGrantedPages, XenUnmapNotice};

/// The event channels of one device of VMPI.
#[derive(Debug)]
pub(super) struct Channels {
    device: XenEventChannels,
    /// Whether the ports may belong to no channel any more.
    are_lost: AtomicBool,
}

impl Channels {
    pub(super) fn open() -> io::Result<Channels> {
        Ok(Channels {
            device: XenEventChannels::open()?,
            are_lost: AtomicBool::new(false),
        })
    }

    /// Makes a channel that `domain` may bind, and returns its local port.
    pub(super) fn offer_to(&self, domain: XenDomain) -> io::Result<u32> {
        self.device.offer_to(domain)
    }

    /// Binds a channel that `domain` offers as its port `remote`, and returns the local port.
    pub(super) fn bind_to(&self, domain: XenDomain, remote: u32) -> io::Result<u32> {
        self.device.bind_to(domain, remote)
    }

    /// Rings a channel, unless the channels are lost.
    pub(super) fn ring(&self, port: u32) {
        if !self.are_lost() {
            // It fails only if this process has closed the channel.
            let _ = self.device.ring(port);
        }
    }

    /// Closes a channel, unless the channels are lost.
    pub(super) fn close(&self, port: u32) {
        if !self.are_lost() {
            let _ = self.device.close(port);
        }
    }

    /// Forgets the rings that have come.
    pub(super) fn clear(&self) {
        self.device.clear();
    }

    /// From now on no port is rung or closed: the domain may have been restored.
    pub(super) fn lose(&self) {
        self.are_lost.store(true, Ordering::Release);
    }

    fn are_lost(&self) -> bool {
        self.are_lost.load(Ordering::Acquire)
    }
}

impl AsFd for Channels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Closes the descriptor of channels for which [`Channels::lose`] was called, and whose only
/// channel had the number `port`. Waits until the data plane has dropped its reference, at most for
/// [`RELEASE`].
///
/// Another channel gets the same number first, so that the kernel finds an interrupt. This channel
/// has a second holder, the notice of a page, because the kernel takes one reference for the lost
/// channel. The kernel logs two warnings (an interrupt that is already free, and an event channel
/// that is already closed); nothing else is left.
///
/// If the number is in use, either no channel was lost, and the descriptor is closed as usual; or
/// the domain `is_restored` and another program has the number. To close the descriptor would then
/// close the channel of that program, so the descriptor stays open.
///
/// # Errors
/// The kernel refuses. The descriptor then stays open until this process ends.
pub(super) fn end_lost(
    lost: Arc<Channels>,
    port: u32,
    peer: XenDomain,
    is_restored: bool,
) -> io::Result<()> {
    for _ in 0..RELEASE.as_millis() / RELEASE_LOOK.as_millis() {
        if Arc::strong_count(&lost) == 1 {
            break;
        }
        std::thread::sleep(RELEASE_LOOK);
    }
    // Until the end is known to be harmless, the descriptor must not be closed.
    let lost = std::mem::ManuallyDrop::new(lost);
    if Arc::strong_count(&lost) > 1 {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the data plane still uses the event channels of a saved domain",
        ));
    }
    let close = |lost| drop(std::mem::ManuallyDrop::into_inner(lost));
    let Some(substitute) = channel_with_number(port, peer)? else {
        if !is_restored {
            close(lost);
        }
        return Ok(());
    };
    let page = XenGrantedPages::allocate(peer, 1)?;
    let byte = page.offset();
    page.set_unmap_notice(XenUnmapNotice { byte, port })?;
    close(lost);
    // In this order: the notice of the page finds the channel closed, which only logs a warning.
    drop(substitute);
    drop(page);
    Ok(())
}

/// Opens a device whose channels include one with the number `port`; `None` if the number is in
/// use. Xen assigns the lowest free number.
fn channel_with_number(port: u32, peer: XenDomain) -> io::Result<Option<XenEventChannels>> {
    let channels = XenEventChannels::open()?;
    for _ in 0..PORTS_MAX {
        let found = channels.offer_to(peer)?;
        if found >= port {
            return Ok((found == port).then_some(channels));
        }
    }
    Ok(None)
}

/// How long the data plane may take to drop a region.
const RELEASE: Duration = Duration::from_secs(5);
const RELEASE_LOOK: Duration = Duration::from_millis(10);
/// Number of channels that are made at most in order to get one number.
const PORTS_MAX: u32 = 1024;
