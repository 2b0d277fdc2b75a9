//! One TCP connection of a TCP shim: bytes in and out, and how far its flow has come.
//!
//! ```text
//!   Connecting --> Greeting (native: REQUEST sent) --> Open --> Closing (what is left is written)
//!   Expecting (native: REQUEST awaited; else the book) --> Offered --> Open --> Closing
//! ```

use std::io::{self, Write};
use std::net::TcpStream;

use carina_netdev::{Deframer, StreamFraming};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// This side connects.
    Connecting,
    /// This side has asked for the flow.
    Greeting,
    /// The other side has connected, and it is not known who it is.
    Expecting,
    /// An application is being asked.
    Offered,
    /// SDUs flow.
    Open,
    /// The flow has ended; what it sent is still written.
    Closing,
}

/// A connection.
pub(super) struct Conn {
    pub stream: TcpStream,
    pub phase: Phase,
    pub deframer: Deframer,
    /// Bytes of the frame at the front that were delivered already.
    pub delivered: usize,
    out: Vec<u8>,
    written: usize,
    pub is_readable: bool,
    pub is_writable: bool,
    /// The other side sends no more.
    pub has_ended: bool,
    /// When a connection that nothing moves on is given up, in ns.
    pub until: Option<u64>,
    /// The place of its flow on the board.
    pub place: Option<usize>,
    /// Bytes that the flow's application may put on its link were taken off it.
    pub wants_credit: bool,
}

impl Conn {
    pub fn new(stream: TcpStream, framing: StreamFraming, phase: Phase) -> Conn {
        Conn {
            stream,
            phase,
            deframer: Deframer::new(framing),
            delivered: 0,
            out: Vec::new(),
            written: 0,
            is_readable: true,
            is_writable: true,
            has_ended: false,
            until: None,
            place: None,
            wants_credit: false,
        }
    }

    /// Bytes that wait to be written.
    pub fn queued(&self) -> usize {
        self.out.len() - self.written
    }

    /// Where to append what is to be written.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes what waits, as far as the kernel takes it.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self) -> io::Result<()> {
        while self.is_writable && self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_writable = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        } else if self.written >= COMPACT_BYTES {
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    /// Reads what is there into the deframer; true when anything came.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn read(&mut self) -> io::Result<bool> {
        if !self.is_readable || self.has_ended {
            return Ok(false);
        }
        match self.deframer.fill(&mut self.stream) {
            Ok(0) => {
                self.has_ended = true;
                Ok(true)
            }
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Written bytes are taken off the front when there are so many.
const COMPACT_BYTES: usize = 256 << 10;
