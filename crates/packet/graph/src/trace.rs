//! Copies the frames on the links of a running graph for other processes: `carina trace`.
//!
//! The process of a graph listens on a Unix socket in the directory of the graph's counters.
//! Another process connects, and sends a request:
//!
//! ```text
//!   reader                                    process of the graph
//!   lines of a request, an empty line  ---->
//!                                      <----  `ok`, or `no: ` and the reason
//!                                      <----  a capture file (pcapng), as frames pass
//!   end of its stream                  ---->
//!                                      <----  number of missed frames, and the end
//! ```
//!
//! The threads that move frames never wait for a reader: frames that find no room in the batch
//! ([`carina_frame_engine::tap`]) are counted as missed. The last blocks of the file state
//! their number.

mod request;
mod server;
mod stream;

use std::path::{Path, PathBuf};

pub use self::request::{RequestError, TraceRequest};
pub(crate) use self::server::TraceServer;
pub use self::stream::{TraceError, TraceStream, is_served};

/// Path of the socket of the graph that has this counter file. Its name has a fixed length, because
/// the path of a socket has at most 107 bytes.
#[must_use]
pub fn socket_of(counters: &Path) -> PathBuf {
    let name = counters.file_name().unwrap_or_default();
    let hash = fnv1a(name.as_encoded_bytes());
    counters.with_file_name(format!("{hash:016x}.trace"))
}

/// FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The line that accepts a request.
const OK: &[u8] = b"ok\n";

/// The beginning of the line that refuses a request; the reason follows.
const NO: &str = "no: ";

#[cfg(test)]
mod tests;
