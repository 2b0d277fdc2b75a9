//! The host's end of one connection: a Unix socket, and the bytes that wait on both of its sides.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carina_vring::Taken;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::machine::BUFFER_BYTES;

/// A Unix socket with the bytes that wait for the socket and for the guest.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    to_socket: Queue,
    to_guest: Queue,
    /// Whether the socket may have bytes to read.
    pub(crate) is_readable: bool,
    is_writable: bool,
    /// Whether the guest has announced that it sends nothing more.
    is_last: bool,
    has_ended: bool,
    is_broken: bool,
    is_hung_up: bool,
}

/// Bytes in the order in which they arrived. The memory is not cleared when it is used again.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Queue {
    fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn take(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room for `bytes` bytes at the end, and returns it. [`Queue::put`] adds what the caller
    /// has written there.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.start > 0 && self.start >= self.end / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let to = self.end + bytes;
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        &mut self.bytes[self.end..to]
    }

    /// Adds the first `bytes` bytes of the room.
    fn put(&mut self, bytes: usize) {
        self.end += bytes;
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.put(bytes.len());
    }
}

impl Stream {
    /// Takes over a socket that does not block.
    pub(crate) fn new(socket: OwnedFd) -> Stream {
        Stream {
            socket,
            to_socket: Queue::default(),
            to_guest: Queue::default(),
            is_readable: true,
            is_writable: true,
            is_last: false,
            has_ended: false,
            is_broken: false,
            is_hung_up: false,
        }
    }

    /// Notes what the kernel reports about the socket.
    pub(crate) fn note_ready(&mut self, readable: bool, writable: bool) {
        self.is_readable |= readable;
        self.is_writable |= writable;
    }

    /// Notes that the program at the other end of the socket has closed it.
    pub(crate) fn note_hangup(&mut self) {
        self.is_hung_up = true;
    }

    /// Whether bytes wait for the guest.
    pub(crate) fn has_data(&self) -> bool {
        !self.to_guest.waiting().is_empty()
    }

    /// Whether the socket cannot take any more bytes: the program at its other end has closed it.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken || (self.is_hung_up && self.has_ended())
    }

    /// Whether the program at the other end of the socket sends nothing more, and the guest has
    /// received all.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && self.to_guest.waiting().is_empty()
    }

    /// Whether the guest sends nothing more, and the socket has taken all.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_last && (self.to_socket.waiting().is_empty() || self.is_broken)
    }

    /// Stores the data of a packet that begins at byte `skip` of a chain. The caller has checked
    /// that the guest has credit for it.
    pub(crate) fn store(&mut self, taken: &Taken, chain: usize, skip: usize, bytes: usize) {
        debug_assert!(bytes <= BUFFER_BYTES as usize);
        let room = self.to_socket.room(bytes);
        let read = taken.read(chain, skip, room);
        self.to_socket.put(read);
    }

    /// Puts bytes in front of what the guest is sent, such as the answer of the handshake in front
    /// of the stream.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.to_guest.extend(bytes);
    }

    /// Puts bytes of the device itself in front of what the socket is sent.
    pub(crate) fn answer(&mut self, bytes: &[u8]) {
        self.to_socket.extend(bytes);
    }

    /// Notes that the guest sends nothing more.
    pub(crate) fn end_data(&mut self) {
        self.is_last = true;
    }

    /// Sends what waits to the socket. Returns the number of bytes that the socket has taken.
    pub(crate) fn flush(&mut self) -> usize {
        let mut done = 0;
        while self.is_writable && !self.is_broken && !self.to_socket.waiting().is_empty() {
            match send(&self.socket, self.to_socket.waiting(), SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    self.to_socket.take(bytes);
                    done += bytes;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.is_writable = false,
                Err(_) => self.is_broken = true,
            }
        }
        if self.is_broken {
            let lost = self.to_socket.waiting().len();
            self.to_socket.take(lost);
            done += lost;
        }
        done
    }

    /// Tells the program at the other end of the socket that the guest sends nothing more.
    pub(crate) fn finish_sending(&mut self) {
        // Fails if the other end is closed already.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Returns bytes for the guest, at most `bytes_max`; empty if none wait now.
    pub(crate) fn fill(&mut self, bytes_max: usize) -> &[u8] {
        if self.to_guest.waiting().is_empty() && self.is_readable && !self.has_ended {
            self.receive();
        }
        let waiting = self.to_guest.waiting();
        &waiting[..waiting.len().min(bytes_max)]
    }

    /// Removes bytes that [`Stream::fill`] has returned.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.to_guest.take(bytes);
    }

    fn receive(&mut self) {
        let room = self.to_guest.room(READ_BYTES);
        let read = loop {
            match recv(&self.socket, &mut *room, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((bytes, _)) => break Ok(bytes),
                Err(error) => break Err(error),
            }
        };
        let bytes = *read.as_ref().unwrap_or(&0);
        self.to_guest.put(bytes);
        match read {
            Ok(0) => self.has_ended = true,
            Ok(bytes) => self.is_readable = bytes == READ_BYTES || self.is_readable,
            Err(Errno::AGAIN) => self.is_readable = false,
            Err(_) => {
                self.has_ended = true;
                self.is_broken = true;
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Number of bytes that one call reads from a socket.
const READ_BYTES: usize = 64 << 10;

/// Connects to a Unix socket without waiting. The other end must listen and have room.
pub(crate) fn connect(path: &std::path::Path) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
