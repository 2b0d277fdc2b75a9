//! A TCP connection of a TCP shim: its buffers, and the progress of its flow.
//!
//! ```text
//!   Connecting --> Greeting (native: REQUEST sent) --> Open --> Closing (the rest is written)
//!   Expecting (native: REQUEST awaited; else the resolver) --> Offered --> Open --> Closing
//! ```

use std::io::{self, Write};
use std::net::TcpStream;

use carina_netdev::{Deframer, StreamFraming};
use carina_time::Instant;

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// This side has started to connect.
    Connecting,
    /// This side has sent its request for the flow.
    Greeting,
    /// The peer has connected; its name is not known yet.
    Expecting,
    /// The peer has requested a flow; the application of this system has not accepted or refused it
    /// yet.
    Offered,
    /// The flow is open.
    Open,
    /// The flow has ended; remaining bytes are still written.
    Closing,
}

/// A TCP connection and its buffers.
pub(super) struct Conn {
    pub stream: TcpStream,
    pub phase: Phase,
    framing: StreamFraming,
    pub deframer: Deframer,
    /// Bytes of the first received frame that were delivered already.
    pub delivered: usize,
    /// Bytes to write. The buffer starts at the start of a frame.
    out: Vec<u8>,
    written: usize,
    pub is_readable: bool,
    pub is_writable: bool,
    /// Whether the peer has closed its sending direction.
    pub has_ended: bool,
    /// Time at which the connection is given up if it makes no progress.
    pub until: Option<Instant>,
    /// Index of the connection's flow in the flow table.
    pub place: Option<usize>,
    /// Whether writing has made room, so that the flow needs new credit.
    pub wants_credit: bool,
}

impl Conn {
    pub(super) fn new(stream: TcpStream, framing: StreamFraming, phase: Phase) -> Conn {
        Conn {
            stream,
            phase,
            framing,
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

    /// Number of bytes that wait to be written.
    pub(super) fn queued(&self) -> usize {
        self.out.len() - self.written
    }

    /// The output buffer, to which frames are appended.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes waiting bytes, as many as the kernel accepts.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn write(&mut self) -> io::Result<()> {
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
            let whole = self.written_whole();
            self.out.drain(..whole);
            self.written -= whole;
        }
        Ok(())
    }

    /// Total bytes of the frames in the output buffer that were written completely.
    fn written_whole(&self) -> usize {
        let mut whole = 0;
        while let Some(bytes) = self.framing.frame_bytes(&self.out[whole..])
            && whole + bytes <= self.written
        {
            whole += bytes;
        }
        whole
    }

    /// Number of frames that are lost if the connection ends now: frames not written completely,
    /// and received frames not delivered.
    pub(super) fn lost(&mut self) -> u64 {
        let mut at = self.written_whole();
        let mut unsent = 0;
        while let Some(bytes) = self.framing.frame_bytes(&self.out[at..]) {
            unsent += 1;
            at += bytes;
        }
        unsent + self.deframer.discard()
    }

    /// Reads available bytes into the deframer. Returns whether any arrived.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn read(&mut self) -> io::Result<bool> {
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

/// When this many bytes at the front of the output buffer are written, they are removed.
const COMPACT_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use carina_netdev::{accept_stream, connect_stream, listen_stream};

    use super::*;

    #[test]
    fn frames_that_were_not_written_whole_are_counted_as_lost() {
        let listener = listen_stream("127.0.0.1:0".parse().unwrap()).unwrap();
        let stream = connect_stream(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = loop {
            if let Some(accepted) = accept_stream(&listener).unwrap() {
                break accepted;
            }
        };
        let framing = StreamFraming::Long;
        let mut conn = Conn::new(stream, framing, Phase::Open);
        let (bytes, mut made) = (60_000, 0);
        // Until the kernel accepts no more, which is after written bytes were removed from the
        // front.
        while conn.is_writable {
            framing.put_head(conn.out(), bytes, false);
            conn.out().extend(std::iter::repeat_n(7, bytes));
            made += 1;
            conn.write().unwrap();
        }
        for _ in 0..10 {
            framing.put_head(conn.out(), 0, false);
            made += 1;
        }
        let lost = conn.lost();
        drop(conn);
        peer.set_nonblocking(false).unwrap();
        let mut arrived = Vec::new();
        peer.read_to_end(&mut arrived).unwrap();
        let whole = (arrived.len() / (framing.head_bytes() + bytes)) as u64;
        assert!(whole > 0);
        assert_eq!(lost, made - whole);
    }
}
