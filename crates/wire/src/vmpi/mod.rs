//! The VMPI ("Reducing Complexity of Virtual Machine Networking", S. Vrijders and others, 2016,
//! section IV) between a virtual machine and its host: the data header and the control messages.
//!
//! A record on the VMPI is a [`DataHeader`] of four bytes and a payload. On channel 0 the payload
//! is exactly one [`Control`] message; on any other channel it is a piece of an SDU.

mod control;
mod header;
mod reader;

pub use control::{Control, Hello, Outcome};
pub use header::{Channel, DataHeader, HeaderError};
pub use reader::DecodeError;

/// The version that [`Hello`] carries.
pub const VERSION: u16 = 1;

/// Bytes of VMPI in front of every piece.
pub const HEADER_BYTES: usize = 4;

/// No control message is longer than this: the longest is `ALLOCATE` with two names of 255 bytes.
pub const CONTROL_BYTES_MAX: usize = 1024;

/// Smallest credit window of a channel in bytes: a quarter of it must carry a useful piece.
pub const WINDOW_BYTES_MIN: u32 = 1024;

/// Longest text of a reason in bytes; longer ones are cut at a character boundary.
pub const REASON_BYTES_MAX: usize = 255;
