//! VMPI: channels between a virtual machine and its host over shared memory.
//!
//! VMPI and its halves are those of S. Vrijders and others, "Reducing Complexity of Virtual Machine
//! Networking" (2016), section IV and figure 2. The wire protocol is Carina's own.
//!
//! [`hl`] multiplexes channels over one device and knows nothing of memory; [`ll`] is the device:
//! two rings in a region that both systems map, a station block through which they find each other
//! again after a restart of either, and doorbells. The protocol is in
//! `docs/explanation/vmpi-protocol.md`.

#![forbid(unsafe_code)]

pub mod hl;
pub mod ll;
