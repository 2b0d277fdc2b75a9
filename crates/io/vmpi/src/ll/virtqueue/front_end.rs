//! A link over virtqueues without a virtual machine: the driver half is a vhost-user front end in
//! another process.

use std::io;
use std::path::{Path, PathBuf};

use carina_sys::EventFd;
use carina_vhost_user::features::VERSION_1;
use carina_vhost_user::{FrontEnd, FrontEndConfig, RingPlace};

use super::device::QueueDevice;
use super::device_memory::{DeviceMemory, RingAddresses};
use super::driver_half::{DriverHalf, Transport};
use super::{FROM_GUEST, TO_GUEST};
use crate::hl::Side;
use crate::ll::VmpiImpl;

/// Opens the guest's side of a link to the node that listens on the socket `path`. The node may
/// start to listen later.
///
/// # Errors
/// The kernel refuses memory.
pub fn front_end(path: &Path) -> io::Result<Box<dyn VmpiImpl + Send>> {
    front_end_of(path, super::device_memory::PIPE_BYTES)
}

/// Like [`front_end`], with pipes of the given size.
pub(super) fn front_end_of(path: &Path, pipe_bytes: usize) -> io::Result<Box<dyn VmpiImpl + Send>> {
    let memory = DeviceMemory::counted_from(FIRST, pipe_bytes)?;
    let (tx, rx) = (memory.pipe(FROM_GUEST)?, memory.pipe(TO_GUEST)?);
    let socket = Socket {
        path: path.to_owned(),
        front_end: None,
        call: EventFd::new()?,
        looked_ns: 0,
    };
    let half = DriverHalf::new(socket, memory);
    Ok(Box::new(QueueDevice::new(Side::Guest, half, tx, rx)))
}

/// The address that the front end gives to the first byte of its memory, for the back end.
const FIRST: u64 = 1 << 32;

/// Number of descriptors of a ring.
const RING_SIZE: u16 = 256;

/// Time between two checks whether the back end still exists.
const LOOK_NS: u64 = 50_000_000;

struct Socket {
    path: PathBuf,
    front_end: Option<FrontEnd>,
    /// The event that the back end signals, the same for all connections.
    call: EventFd,
    looked_ns: u64,
}

impl Transport for Socket {
    fn reset(&mut self) -> io::Result<[u16; 2]> {
        self.front_end = None;
        Ok([RING_SIZE; 2])
    }

    fn start(&mut self, memory: &DeviceMemory, rings: &[RingAddresses; 2]) -> io::Result<()> {
        let rings = rings.map(|ring| RingPlace {
            size: ring.size,
            descriptors: ring.descriptors,
            driver: ring.driver,
            device: ring.device,
        });
        let config = FrontEndConfig {
            features: VERSION_1,
            memory: memory.fd(),
            first: FIRST,
            bytes: memory.bytes() as u64,
            rings: &[rings[TO_GUEST], rings[FROM_GUEST]],
        };
        self.front_end = Some(FrontEnd::connect(&self.path, &config, &self.call)?);
        Ok(())
    }

    fn is_alive(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.looked_ns) < LOOK_NS {
            return true;
        }
        self.looked_ns = now_ns;
        self.front_end.as_ref().is_some_and(FrontEnd::is_connected)
    }

    fn kick(&self, ring: usize) {
        if let Some(front_end) = &self.front_end {
            front_end.kick(ring);
        }
    }

    fn signal(&self) -> Option<&EventFd> {
        Some(&self.call)
    }
}
