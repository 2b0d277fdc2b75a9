//! One connection of a link: the bytes between its socket and the pipes.

use std::os::fd::OwnedFd;

use carina_ring::RECORD_HEADER_BYTES;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::flight::{FalseCount, Flight};
use super::frame::{
    FRAME_HEADER_BYTES, Frame, FrameError, PREFACE_BYTES, RECORD_BYTES_MAX, STREAM_VERSION, beat,
    parse, parse_preface, preface, record_header, taken,
};
use crate::ll::DownReason;
use crate::ll::virtqueue::pipe::Pipe;

/// A connection, with the bytes that are on their way between socket and pipes.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// The peer's window; `None` until its preface has arrived.
    pub(super) window: Option<u64>,
    pub(super) since_ns: u64,
    pub(super) heard_ns: u64,
    pub(super) looked_ns: u64,
    /// Time without a sign of life of the peer, in which this side was looking.
    pub(super) silent_ns: u64,
    pub(super) out: Buffer,
    pub(super) flight: Flight,
    pub(super) input: Input,
    /// Whether the last read has emptied the socket.
    pub(super) is_drained: bool,
    /// Bytes of record frames that arrived, that were read, and that the peer knows of.
    pub(super) arrived: u64,
    pub(super) taken: u64,
    pub(super) shown: u64,
    /// Whether the socket had no room, so that this side waits for it.
    pub(super) is_stuck: bool,
    pub(super) waits_to_write: bool,
}

/// Bytes of frames that wait for the socket.
#[derive(Default)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
}

impl Buffer {
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn step(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

/// Bytes that arrived and are not sorted yet. The memory is written only by the kernel, and never
/// cleared: clearing room for a read costs more than a short read.
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Input {
        Input {
            bytes: vec![0; INPUT_BYTES + READ_BYTES],
            start: 0,
            end: 0,
        }
    }

    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn step(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The room for the next read. This side reads only while fewer than [`INPUT_BYTES`] wait.
    fn room(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.end < READ_BYTES {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let to = self.bytes.len().min(self.end + READ_BYTES);
        &mut self.bytes[self.end..to]
    }
}

impl Connection {
    /// Takes over a connected socket that does not block, and begins with this side's preface.
    pub(super) fn new(socket: OwnedFd, now_ns: u64) -> Connection {
        let mut connection = Connection {
            socket,
            window: None,
            since_ns: now_ns,
            heard_ns: now_ns,
            looked_ns: now_ns,
            silent_ns: 0,
            out: Buffer::default(),
            flight: Flight::new(),
            input: Input::new(),
            is_drained: false,
            arrived: 0,
            taken: 0,
            shown: 0,
            is_stuck: false,
            waits_to_write: false,
        };
        connection.out.bytes.extend(preface(WINDOW_BYTES));
        connection
    }

    /// Reads once. Returns the number of bytes, 0 at the end of the stream; `None` if none wait.
    pub(super) fn read(&mut self) -> rustix::io::Result<Option<usize>> {
        let room = self.input.room();
        let room_bytes = room.len();
        let read = loop {
            match recv(&self.socket, &mut *room, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((bytes, _)) => break Ok(Some(bytes)),
                Err(Errno::AGAIN) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        let bytes = read.ok().flatten().unwrap_or(0);
        self.input.end += bytes;
        self.is_drained = bytes < room_bytes;
        read
    }

    /// Moves the complete frames that have arrived to where they belong.
    pub(super) fn sort(&mut self, rx: &mut Pipe, now_ns: u64) -> Result<(), DownReason> {
        if self.window.is_none() {
            let window = parse_preface(self.input.waiting()).map_err(fault)?;
            let Some(window) = window else { return Ok(()) };
            self.input.step(PREFACE_BYTES);
            self.window = Some(u64::from(window));
            self.heard_ns = now_ns;
        }
        while let Some((frame, len)) = parse(self.input.waiting()).map_err(fault)? {
            self.heard_ns = now_ns;
            match frame {
                Frame::Record(bytes) => {
                    let cost = len as u64;
                    if self.arrived - self.taken > WINDOW + RECORD_BYTES_MAX as u64 {
                        return Err(violation(
                            "window-overrun",
                            "the peer sent beyond the window",
                        ));
                    }
                    let Ok(mut slot) = rx.put.reserve(bytes) else {
                        // The peer waits while the pipe is full, so its silence does not count.
                        break;
                    };
                    let body = &self.input.waiting()[FRAME_HEADER_BYTES..len];
                    slot.write_at(0, body);
                    slot.commit(false);
                    self.arrived += cost;
                }
                Frame::Taken(bytes) => {
                    let noted = self.flight.peer_has_taken(bytes, now_ns);
                    noted.map_err(|FalseCount| {
                        violation("bad-count", "the peer's count of read bytes is false")
                    })?;
                }
                Frame::Beat => {}
            }
            self.input.step(len);
        }
        Ok(())
    }

    /// Shows the peer that this side is alive, and how many bytes this side has read.
    pub(super) fn beat(&mut self) {
        if self.taken == self.shown {
            self.out.bytes.extend(beat());
        } else {
            self.show_taken();
        }
    }

    fn show_taken(&mut self) {
        self.out.bytes.extend(taken(self.taken));
        self.shown = self.taken;
    }

    /// Moves records from the pipe to the bytes that are sent next.
    pub(super) fn fill(&mut self, tx: &mut Pipe, now_ns: u64) {
        let hidden = self.taken - self.shown;
        // A record that is sent anyway carries the count of a few bytes, too.
        if hidden >= SHOWN_BYTES || (hidden > 0 && tx.has_record()) {
            self.show_taken();
        }
        let window = self.window.unwrap_or(0);
        while self.out.waiting().len() < OUT_BYTES && self.flight.on_the_way() < window {
            // The pipe holds what this process has put in.
            let Ok(Some(lease)) = tx.next() else { break };
            self.out.compact();
            self.out.bytes.extend(record_header(lease.len()));
            lease.append_to(&mut self.out.bytes);
            let cost = (FRAME_HEADER_BYTES + lease.len()) as u64;
            self.flight.send(cost, now_ns);
        }
    }

    /// Writes once. Returns whether the socket has taken all.
    pub(super) fn write(&mut self) -> rustix::io::Result<bool> {
        let written = loop {
            match send(&self.socket, self.out.waiting(), SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                written => break written,
            }
        };
        match written {
            Ok(bytes) => self.out.step(bytes),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
        self.is_stuck = !self.out.waiting().is_empty();
        Ok(!self.is_stuck)
    }
}

fn violation(code: &'static str, reason: &str) -> DownReason {
    DownReason::Violation {
        code,
        reason: reason.to_owned(),
    }
}

fn fault(error: FrameError) -> DownReason {
    match error {
        FrameError::Version(peer) if peer != STREAM_VERSION => DownReason::WrongVersion { peer },
        error => violation("bad-frame", &error.to_string()),
    }
}

/// How many bytes the peer may have sent that this side has not read.
const WINDOW_BYTES: u32 = 256 << 10;
const WINDOW: u64 = WINDOW_BYTES as u64;

/// Number of bytes that this side reads between two reports to the peer of how many bytes it has
/// read.
const SHOWN_BYTES: u64 = 4 << 10;

/// This side stops to read the socket at so many bytes that it could not move on.
pub(super) const INPUT_BYTES: usize = RECORD_BYTES_MAX + RECORD_HEADER_BYTES;

/// Largest number of bytes of one read, and of one write.
const READ_BYTES: usize = 128 << 10;
const OUT_BYTES: usize = 64 << 10;
