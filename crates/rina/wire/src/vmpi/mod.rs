//! The format of messages between a virtual machine and its host: data headers and control messages
//! of the VMPI (S. Vrijders and others, "Reducing Complexity of Virtual Machine Networking", 2016,
//! section IV).
//!
//! A record on the VMPI is a [`DataHeader`] of four bytes and a payload. On channel 0 the payload
//! is one [`Control`] message; on other channels it is a piece of an SDU. A record can also be a
//! [`BundleHeader`] of eight bytes, followed by several SDUs of one channel.

mod block;
mod control;
mod header;
mod reader;

pub use block::{BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockError, BlockHeader};
pub use control::{Control, Hello, Outcome};
pub use header::{BUNDLE_HEADER_BYTES, BundleHeader, Channel, DataHeader, HeaderError};
pub use reader::DecodeError;

/// Version of the VMPI protocol that [`Hello`] carries.
pub const VERSION: u16 = 2;

/// Length in bytes of the header in front of every control message and piece.
pub const HEADER_BYTES: usize = 4;

/// Upper limit of the length of a control message. The longest is `ALLOCATE` with two names of 255
/// bytes.
pub const CONTROL_BYTES_MAX: usize = 1024;

/// Smallest credit window of a channel in bytes. A quarter of it must be able to carry a useful
/// piece.
pub const WINDOW_BYTES_MIN: u32 = 1024;

/// MAC address of the VMPI's virtio device, by which a guest distinguishes it from network cards.
/// It is locally administered and contains `CARIN` in ASCII.
pub const DEVICE_MAC: [u8; 6] = [0x06, b'C', b'A', b'R', b'I', b'N'];

/// Longest reason in bytes; longer ones are truncated at a character boundary.
pub const REASON_BYTES_MAX: usize = 255;
