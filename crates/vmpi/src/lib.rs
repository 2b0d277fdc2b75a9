//! VMPI: channels between a virtual machine and its host over shared memory.
//!
//! [`hl`] multiplexes channels over one device and knows nothing of memory; [`ll`] is the device:
//! two rings in a region that both systems map, a station block through which they find each other
//! again after a restart of either, and doorbells. The protocol is in `docs/vmpi-protocol.md`.

#![deny(unsafe_code)]

pub mod hl;
pub mod ll;
