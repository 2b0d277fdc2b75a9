//! A VMPI device without a virtual machine: a region in a memfd, and two doorbells.
//!
//! Tests use it, and two systems that are containers or processes on one kernel.

use std::io;
use std::os::fd::AsFd;

use carina_sys::{EventFd, Memory};

use super::VmpiImpl;
use super::device::{Device, Doorbells};
use super::layout::Layout;
use crate::hl::Side;

/// A region in a memfd, and its doorbells. Each side can be opened many times, one after the other.
#[derive(Debug)]
pub struct MemfdRegion {
    memory: Memory,
    layout: Layout,
    host_doorbell: EventFd,
    guest_doorbell: EventFd,
}

impl MemfdRegion {
    /// Creates a region filled with zeroes.
    ///
    /// # Errors
    /// `InvalidInput` if [`Layout`] does not allow the size; the kernel refuses memory.
    pub fn create(region_bytes: usize) -> io::Result<MemfdRegion> {
        layout_of(region_bytes)?;
        MemfdRegion::over(Memory::anonymous("carina-vmpi", region_bytes)?)
    }

    /// Creates a region in `memory`, which must be filled with zeroes.
    pub(super) fn over(memory: Memory) -> io::Result<MemfdRegion> {
        Ok(MemfdRegion {
            layout: layout_of(memory.bytes())?,
            memory,
            host_doorbell: EventFd::new()?,
            guest_doorbell: EventFd::new()?,
        })
    }

    /// Opens one side. A device that was opened before for this side must have been dropped.
    ///
    /// # Errors
    /// The kernel refuses to map the region.
    pub fn device(&self, side: Side) -> io::Result<Box<dyn VmpiImpl + Send>> {
        let (own, peer) = match side {
            Side::Host => (&self.host_doorbell, &self.guest_doorbell),
            Side::Guest => (&self.guest_doorbell, &self.host_doorbell),
        };
        let doorbells = Pair {
            own: own.try_clone()?,
            peer: peer.try_clone()?,
        };
        Ok(Box::new(Device::open(
            side,
            self.memory.as_fd(),
            self.layout,
            doorbells,
        )?))
    }

    /// Returns the memory of the region, for the other side to map.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

fn layout_of(region_bytes: usize) -> io::Result<Layout> {
    Layout::new(region_bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Creates a region and opens both sides. Returns the host's device and the guest's device.
///
/// # Errors
/// As for [`MemfdRegion::create`].
pub fn pair(
    region_bytes: usize,
) -> io::Result<(Box<dyn VmpiImpl + Send>, Box<dyn VmpiImpl + Send>)> {
    let region = MemfdRegion::create(region_bytes)?;
    Ok((region.device(Side::Host)?, region.device(Side::Guest)?))
}

struct Pair {
    own: EventFd,
    peer: EventFd,
}

impl Doorbells for Pair {
    fn ring(&self, _peer_doorbell: u32) {
        self.peer.signal();
    }

    fn can_ring(&self) -> bool {
        true
    }

    fn own(&self) -> Option<&EventFd> {
        Some(&self.own)
    }

    fn can_be_rung(&self) -> bool {
        true
    }

    fn doorbell(&self) -> u32 {
        0
    }

    fn is_attached(&self) -> bool {
        true
    }
}
