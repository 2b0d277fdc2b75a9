//! VMPI: channels between a virtual machine and its host over shared memory.
//!
//! VMPI and its two halves were defined by S. Vrijders and others, "Reducing Complexity of Virtual
//! Machine Networking" (2016), section IV and figure 2. The wire protocol is Carina's own.
//!
//! [`hl`] multiplexes channels over one device and does not depend on shared memory. [`ll`]
//! contains the devices. A device of shared memory consists of two rings in a region that both
//! systems map, a station block by which the two nodes find each other again when either restarts,
//! and doorbells. `docs/explanation/vmpi-protocol.md` describes the protocol.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod hl;
pub mod ll;
