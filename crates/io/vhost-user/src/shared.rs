//! State that the control thread and the data path of a port share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use carina_sys::EventFd;

use crate::device::Device;
use crate::kicks::Kicks;

/// Features and limits that a vhost-user device offers to drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Virtio feature bits of the device. The back end adds the feature bits of the vhost-user
    /// protocol.
    pub features: u64,
    /// Number of rings that the device offers.
    pub rings: usize,
    /// Largest MTU that the device supports, in bytes. It is used only if `features` include the
    /// MTU feature.
    pub mtu_max: u16,
    /// The device's configuration space, for a front end that asks the back end for it; `None` for
    /// a device whose configuration the front end knows.
    pub config: Option<[u8; 8]>,
}

/// The shared state of a port.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) offer: Offer,
    pub(crate) device: Mutex<Device>,
    /// Signalled when the data path should look at all rings.
    pub(crate) changed: EventFd,
    pub(crate) kicks: Arc<Kicks>,
    /// Signalled when the port ends.
    pub(crate) stop: EventFd,
    pub(crate) counts: [AtomicU64; 4],
}
