//! The device without a virtual machine: a region in a memfd, two bells.
//!
//! For tests, and for two systems that are containers or processes of one kernel.

use std::io;
use std::os::fd::AsFd;

use carina_sys::{EventFd, Memory};

use super::VmpiImpl;
use super::device::{Bells, Device};
use super::layout::Layout;
use crate::hl::Side;

/// A region and its bells, from which the sides are opened, each any number of times in a row.
#[derive(Debug)]
pub struct MemfdRegion {
    memory: Memory,
    layout: Layout,
    host_bell: EventFd,
    guest_bell: EventFd,
}

impl MemfdRegion {
    /// Makes a zeroed region.
    ///
    /// # Errors
    /// `InvalidInput` when the size is not one of [`Layout`]; the kernel's refusal.
    pub fn create(region_bytes: usize) -> io::Result<MemfdRegion> {
        let layout = Layout::new(region_bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(MemfdRegion {
            memory: Memory::anonymous("carina-vmpi", region_bytes)?,
            layout,
            host_bell: EventFd::new()?,
            guest_bell: EventFd::new()?,
        })
    }

    /// Opens one side. The one opened before for this side must be gone.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn device(&self, side: Side) -> io::Result<Box<dyn VmpiImpl + Send>> {
        let (own, peer) = match side {
            Side::Host => (&self.host_bell, &self.guest_bell),
            Side::Guest => (&self.guest_bell, &self.host_bell),
        };
        let bells = Pair {
            own: own.try_clone()?,
            peer: peer.try_clone()?,
        };
        Ok(Box::new(Device::open(
            side,
            self.memory.as_fd(),
            self.layout,
            bells,
        )?))
    }

    /// The memory, for whoever is to map it too.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

/// Both sides of a new region: host, guest.
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

impl Bells for Pair {
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
