//! Encoders and decoders of headers on the wire and on the VMPI. No I/O.
//!
//! Every decoder accepts bytes that an attacker may have chosen. It never panics, never reads
//! outside its input and never allocates memory. `docs/explanation/vmpi-protocol.md` draws the
//! formats of the VMPI.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod arp;
pub mod capture;
pub mod dif;
pub mod ether;
mod flow_spec;
pub mod inet;
pub mod ipv6;
mod name;
pub mod neighbour;
mod payload;
pub mod pcap;
pub mod pcapng;
pub mod vmpi;

pub use flow_spec::FlowSpec;
pub use name::{NAME_BYTES_MAX, NameError, check_name};
pub use payload::{Bytes, Payload};
