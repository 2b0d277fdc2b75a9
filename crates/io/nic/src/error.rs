//! Errors of opening and driving a card.

use std::io;

use crate::binding::BindError;

/// Why a card cannot be driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// There is no driver for the device.
    #[error(
        "{address} is {vendor:04x}:{device:04x}, for which there is no driver; there are drivers \
         for the 82574 (8086:10d3), 82576 (8086:10c9), 82599 (8086:10fb) and virtio-net \
         (1af4:1041, 1af4:1000)"
    )]
    Unknown {
        /// The PCI address of the device.
        address: String,
        /// PCI id of the vendor.
        vendor: u16,
        /// PCI id of the device.
        device: u16,
    },
    /// A value of the configuration is out of range.
    #[error("{name} = {value}: must be {right}")]
    Config {
        /// The configuration key.
        name: &'static str,
        /// The invalid value, as it was given.
        value: usize,
        /// The values that are allowed, as text.
        right: String,
    },
    /// The card cannot be taken from the kernel's driver.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The kernel refuses memory, a BAR or a descriptor.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The device does not complete a reset in time.
    #[error("the device does not become ready after a reset")]
    Reset,
    /// The device does not start its rings, or has none.
    #[error("the device does not start its rings")]
    Ring,
}
