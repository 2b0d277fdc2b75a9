//! Drivers in user space for network cards, past the kernel: PCI devices, their DMA memory, and
//! drivers.
//!
//! ```text
//!   Nic      receive, put, flush             one card, whichever driver it has
//!   intel    82574, 82576, 82599             registers over a trait: a BAR, or a model in tests
//!   virtio   network devices, and what VMPI over virtqueues shares with them
//!   binding  from the kernel's driver and back, also after kill -9
//!   pci, vfio, registers, dma                the device, and its memory
//! ```
//!
//! # Trust
//! A device may be faulty or hostile. The drivers read what it writes into rings once, check it
//! against their own state, and count impossible values. Behind an IOMMU a device can access only
//! its own memory; without one it can access all memory of the system, as under the kernel's
//! driver.
#![deny(unsafe_code)]

pub mod binding;
pub mod dma;
mod driver;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod guardian;
pub mod intel;
mod nic;
pub mod pci;
pub mod registers;
mod routes;
pub mod vfio;
pub mod virtio;

pub use crate::binding::{AccessMethod, BindError};
pub use crate::driver::{Counts, Link, Received, Settings};
pub use crate::error::NicError;
pub use crate::nic::{MTU_MAX, Nic, NicConfig, driver_for};
