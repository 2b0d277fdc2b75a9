//! The protocol by which an agent sends a guest to another agent.
//!
//! ```text
//!   source                                destination
//!     | -- offer: name, hardware --------------> |   starts a QEMU for the guest
//!     | <------------------------------ reply -- |
//!     | -- pieces of QEMU's stream, an end ----> |   the guest is paused at both ends
//!     | -- sent: how long it was paused -------> |
//!     | <------------------------------ reply -- |
//! ```
//!
//! A message is JSON text after its length in four bytes, most significant byte first. A piece has
//! the same format; a piece of length 0 is the end. If the offer has a disk, pieces of two streams
//! follow it (`with_disk`). The protocol does not encrypt or authenticate: the connection that
//! carries it must do so.

pub(crate) mod with_disk;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use carina_vm::Hardware;
use carina_vnet::host_part::VnetId;
use carina_vnet_images::MovingDisk;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A connection between the agents of two hosts, over which a guest moves. Its reads and writes
/// time out by themselves, with the error kind `WouldBlock` or `TimedOut`. One thread may read
/// while another writes.
pub struct GuestWire {
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
}

impl GuestWire {
    /// A connection that is read by way of `reader` and written by way of `writer`.
    #[must_use]
    pub fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> GuestWire {
        GuestWire {
            reader: Box::new(reader),
            writer: Box::new(writer),
        }
    }
}

impl fmt::Debug for GuestWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestWire").finish_non_exhaustive()
    }
}

/// Connects to the agents of other hosts.
pub trait GuestCaller: Send + Sync + std::fmt::Debug {
    /// Connects to the agent of `host` at address `at`.
    ///
    /// # Errors
    /// The agent is not reached, or another one answers.
    fn call(&self, host: &str, at: &str) -> io::Result<GuestWire>;
}

/// The first message of the source host: which node it will send, and with which hardware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Identifier (uid) of the node's network, which the provider has assigned.
    pub vnet: VnetId,
    /// Random number of the move, which the provider has given to both hosts.
    pub number: u64,
    /// Name of the node that moves.
    pub node: String,
    /// The hardware that the node's guest sees.
    pub hardware: Hardware,
    /// The numbers of the machine's cards, by interface name.
    pub cards: BTreeMap<String, u32>,
    /// The node's disk, which is sent before the guest; `None` for a node without a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<MovingDisk>,
}

/// The last message of the source: everything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Time from pausing the guest until this message, µs.
    #[serde(rename = "stood_us")]
    pub paused_us: u64,
}

/// What the destination answers to an offer, and after the last message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The destination is ready for the next message, or has received everything.
    Ready,
    /// The destination refuses the node, for this reason.
    Refused(String),
}

/// Writes a message as its length and JSON text.
///
/// # Errors
/// The connection breaks or times out.
pub fn write(wire: &mut GuestWire, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    write_piece(&mut wire.writer, &text)?;
    wire.writer.flush()
}

/// Reads the next message, and parses it as `T`. Blocks until the message has arrived.
///
/// # Errors
/// The connection breaks or times out, or the message is of another kind.
pub fn read<T: DeserializeOwned>(wire: &mut GuestWire) -> io::Result<T> {
    let mut text = Vec::new();
    read_piece(&mut wire.reader, MESSAGE_MAX, &mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Sends as pieces what QEMU writes to its end of a socket, until that is closed.
///
/// # Errors
/// The connection breaks or times out.
pub fn send_pieces(from: &mut UnixStream, wire: &mut GuestWire) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        let length = from.read(&mut buffer)?;
        write_piece(&mut wire.writer, &buffer[..length])?;
        if length == 0 {
            return wire.writer.flush();
        }
    }
}

/// Passes received pieces to QEMU, until the end.
///
/// # Errors
/// The connection breaks or times out, or QEMU accepts no more.
pub fn take_pieces(wire: &mut GuestWire, to: &mut dyn Write) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        read_piece(&mut wire.reader, PIECE, &mut buffer)?;
        if buffer.is_empty() {
            return to.flush();
        }
        to.write_all(&buffer)?;
    }
}

fn write_piece(wire: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    wire.write_all(&length.to_be_bytes())?;
    wire.write_all(bytes)
}

fn read_piece(wire: &mut dyn Read, bytes_max: usize, into: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    wire.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max {
        let what = format!("a piece of {length} bytes: must be at most {bytes_max}");
        return Err(io::Error::other(what));
    }
    into.resize(length, 0);
    wire.read_exact(into)
}

/// Largest message, bytes.
const MESSAGE_MAX: usize = 64 << 10;
/// Largest piece, bytes.
const PIECE: usize = 256 << 10;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The two ends of a connection.
    pub(crate) fn pair() -> (GuestWire, GuestWire) {
        let (near, far) = UnixStream::pair().unwrap();
        let wire = |stream: UnixStream| GuestWire::new(stream.try_clone().unwrap(), stream);
        (wire(near), wire(far))
    }

    #[test]
    fn guest_comes_as_it_was_sent() {
        let (mut near, mut far) = pair();
        let (mut qemu, mut out) = UnixStream::pair().unwrap();
        let (mut taken, mut other) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                qemu.write_all(&sent).unwrap();
                qemu.shutdown(std::net::Shutdown::Both).unwrap();
            });
            scope.spawn(|| {
                send_pieces(&mut out, &mut near).unwrap();
                write(&mut near, &Sent { paused_us: 7 }).unwrap();
            });
            scope.spawn(|| {
                take_pieces(&mut far, &mut taken).unwrap();
                taken.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(read::<Sent>(&mut far).unwrap().paused_us, 7);
            });
            let mut come = Vec::new();
            other.read_to_end(&mut come).unwrap();
            assert_eq!(come, sent);
        });
    }

    #[test]
    fn pieces_that_are_too_long_or_no_messages_are_refused() {
        for bytes in [
            &[0xff, 0, 0, 0][..],
            &[0, 0, 0, 2, b'{', b'x'],
            &[0, 0, 0, 9, b'{'],
        ] {
            let (mut near, mut far) = pair();
            near.writer.write_all(bytes).unwrap();
            drop(near);
            assert!(read::<Sent>(&mut far).is_err());
        }
    }
}
