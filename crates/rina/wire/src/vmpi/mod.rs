//! The VMPI ("Reducing Complexity of Virtual Machine Networking", S. Vrijders and others, 2016,
//! section IV) between a virtual machine and its host: the data header and the control messages.
//!
//! A record on the VMPI is a [`DataHeader`] of four bytes and a payload. On channel 0 the payload
//! is exactly one [`Control`] message; on any other channel it is a piece of an SDU. Or it is a
//! [`BundleHeader`] of eight bytes and several SDUs of one channel.

mod block;
mod control;
mod header;
mod reader;

pub use block::{BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockError, BlockHeader};
pub use control::{Control, Hello, Outcome};
pub use header::{BUNDLE_HEADER_BYTES, BundleHeader, Channel, DataHeader, HeaderError};
pub use reader::DecodeError;

/// The version that [`Hello`] carries.
pub const VERSION: u16 = 2;

/// Bytes of VMPI in front of every piece.
pub const HEADER_BYTES: usize = 4;

/// No control message is longer than this: the longest is `ALLOCATE` with two names of 255 bytes.
pub const CONTROL_BYTES_MAX: usize = 1024;

/// Smallest credit window of a channel in bytes: a quarter of it must carry a useful piece.
pub const WINDOW_BYTES_MIN: u32 = 1024;

/// The MAC address by which a guest knows the virtio device of the VMPI among its network cards:
/// locally administered, and `CARIN` in ASCII.
pub const DEVICE_MAC: [u8; 6] = [0x06, b'C', b'A', b'R', b'I', b'N'];

/// Longest text of a reason in bytes; longer ones are cut at a character boundary.
pub const REASON_BYTES_MAX: usize = 255;
