//! Why a card cannot be driven.

use std::io;

use crate::binding::BindError;

/// Why a card cannot be driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// There is no driver for it.
    #[error(
        "{address} is {vendor:04x}:{device:04x}, for which there is no driver; there are drivers \
         for the 82574 (8086:10d3), 82576 (8086:10c9), 82599 (8086:10fb) and virtio-net \
         (1af4:1041, 1af4:1000)"
    )]
    Unknown {
        /// Where it is.
        address: String,
        /// Its vendor.
        vendor: u16,
        /// Its number.
        device: u16,
    },
    /// A figure of the configuration is out of range.
    #[error("{name} = {value}: must be {right}")]
    Config {
        /// The key.
        name: &'static str,
        /// What was given.
        value: usize,
        /// What would be right.
        right: String,
    },
    /// It cannot be taken from the kernel.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refuses memory, a BAR or a descriptor.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It does not come back from a reset.
    #[error("the device does not come back from a reset")]
    Reset,
    /// Its rings do not start, or it has none.
    #[error("the device does not start its rings")]
    Ring,
}
