//! What the control thread and the data path share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use carina_sys::EventFd;

use crate::device::Device;
use crate::kicks::Kicks;

/// What a device offers to drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Features of virtio. Those of vhost-user itself are added.
    pub features: u64,
    /// Number of rings.
    pub rings: usize,
    /// The largest MTU that the device can carry, where the MTU is among the features.
    pub mtu_max: u16,
}

/// A port, seen from both.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) offer: Offer,
    pub(crate) device: Mutex<Device>,
    /// Rings when the data path should look at all rings.
    pub(crate) changed: EventFd,
    pub(crate) kicks: Arc<Kicks>,
    /// Rings when the port ends.
    pub(crate) stop: EventFd,
    pub(crate) counts: [AtomicU64; 4],
}
