//! Copies of what passes the links of a graph that runs, for other processes: `carina trace`.
//!
//! The process of a graph listens on a Unix socket in the directory of the graph's counters.
//! Another process connects and says what it wants to see:
//!
//! ```text
//!   reader                                    process of the graph
//!   lines of a request, an empty line  ---->
//!                                      <----  `ok`, or `no: ` and why
//!                                      <----  a capture file (pcapng), as frames pass
//!   end of its stream                  ---->
//!                                      <----  how many frames were missed, and the end
//! ```
//!
//! The threads that move frames never wait for a reader: frames that find no room in the batch
//! ([`carina_engine::tap`]) are counted as missed. The last blocks of the file say how many.

mod request;
mod server;
mod stream;

use std::path::{Path, PathBuf};

pub use self::request::{RequestError, TraceRequest};
pub(crate) use self::server::TraceServer;
pub use self::stream::{TraceError, TraceStream, is_served};

/// The socket of the graph whose counters are in this file. Its name is short, however long that
/// of the file is: a socket's path has at most 107 bytes.
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

/// A line that says that a trace begins.
const OK: &[u8] = b"ok\n";

/// What a line begins with that says why none does.
const NO: &str = "no: ";

#[cfg(test)]
mod tests;
