//! Marks: the state of a socket that is a flow or a registration, kept by the kernel beside its
//! label.
//!
//! A mark is stored as the socket option `SO_INCOMING_CPU`, an integer that the kernel keeps for
//! each socket and that `AF_UNIX` sockets do not use. The mark stays with the socket in any
//! process, and one system call reads it.
//!
//! ```text
//! bits 30..16  0x2CA1   the magic number: this socket is a flow, or a registration
//! bit  0       IPV6     the program made the socket with AF_INET6
//! bit  1       LISTENER the socket is a registration, from which the program accepts flows
//! bit  2       PENDING  the flow was requested without waiting; its outcome is not known yet
//! bit  3       FAILED   the flow was refused after `connect` had returned EINPROGRESS
//! bit  4       NODELAY  the program has set TCP_NODELAY
//! bit  5       REUSEPORT  the program has set SO_REUSEPORT
//! bit  6       V6ONLY   the program has set IPV6_V6ONLY
//! bit  7       UNTOLD   a signal kept the program from getting the result of `connect` or `bind`
//! bit  8       DATAGRAMS  the flow is unreliable, and one message is one datagram
//! bit  9       RELAYED  with DATAGRAMS: the other end is a relay; each datagram has a header
//! bit  10      DISCARDED  bytes were discarded that came after the remote end had closed the flow
//! bit  11      ACCEPTING  with LISTENER: the program has called `listen`
//! bit  12      BOTH     with LISTENER and V6ONLY: it has the name that a socket for IPv4 would get
//! ```

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::sockopt;

/// The mark of one socket: a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u32);

impl Mark {
    /// Bit: the program made the socket with `AF_INET6`.
    pub const IPV6: Mark = Mark(1);
    /// Bit: the socket is a registration, from which the program accepts flows.
    pub const LISTENER: Mark = Mark(1 << 1);
    /// Bit: the flow was requested without waiting, and its outcome is not known yet.
    pub const PENDING: Mark = Mark(1 << 2);
    /// Bit: the flow was refused, after `connect` had returned `EINPROGRESS`.
    pub const FAILED: Mark = Mark(1 << 3);
    /// Bit: the program has set `TCP_NODELAY`.
    pub const NODELAY: Mark = Mark(1 << 4);
    /// Bit: the program has set `SO_REUSEPORT`.
    pub const REUSEPORT: Mark = Mark(1 << 5);
    /// Bit: the program has set `IPV6_V6ONLY`.
    pub const V6ONLY: Mark = Mark(1 << 6);
    /// Bit: the `connect` or `bind` that made the socket succeeded, but a signal kept the program
    /// from getting the result.
    pub const UNTOLD: Mark = Mark(1 << 7);
    /// Bit: the program made the socket for UDP; one message of the flow is one datagram.
    pub const DATAGRAMS: Mark = Mark(1 << 8);
    /// Bit, with `DATAGRAMS`: the socket has many peers. Its other end is a relay. Before each
    /// datagram is a header with the address of its peer
    /// ([`datagram_header`](crate::datagram_header)).
    pub const RELAYED: Mark = Mark(1 << 9);
    /// Bit: the program has sent bytes after the remote end had closed the flow, and they were
    /// discarded.
    pub const DISCARDED: Mark = Mark(1 << 10);
    /// Bit, with `LISTENER`: the program has called `listen`.
    pub const ACCEPTING: Mark = Mark(1 << 11);
    /// Bit, with `LISTENER` and `V6ONLY`: the socket has the name that a socket for IPv4 at the
    /// same port would get.
    pub const BOTH: Mark = Mark(1 << 12);
    /// A mark without any bit.
    pub const NONE: Mark = Mark(0);

    /// Returns the mark of a socket; `None` when it is neither a flow nor a registration of Carina.
    pub fn of(socket: BorrowedFd<'_>) -> Option<Mark> {
        let value = sockopt::socket_incoming_cpu(socket).ok()?;
        (value & !BITS == MAGIC).then_some(Mark(value & BITS))
    }

    /// Stores the mark in the kernel's state of a socket.
    ///
    /// # Errors
    /// The kernel's refusal: not a socket.
    pub fn set(self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        sockopt::set_socket_incoming_cpu(socket, MAGIC | self.0)
    }

    /// Whether this mark has all bits of `other`.
    pub fn has(self, other: Mark) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this mark with the bits of `other` added.
    #[must_use]
    pub fn with(self, other: Mark) -> Mark {
        Mark(self.0 | other.0)
    }

    /// Returns this mark, with the bits of `other` added if `condition` holds.
    #[must_use]
    pub fn with_if(self, condition: bool, other: Mark) -> Mark {
        if condition { self.with(other) } else { self }
    }

    /// Returns this mark without the bits of `other`.
    #[must_use]
    pub fn without(self, other: Mark) -> Mark {
        Mark(self.0 & !other.0)
    }
}

const MAGIC: u32 = 0x2CA1_0000;
const BITS: u32 = 0xFFFF;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn mark_goes_with_the_descriptor() {
        let (a, b) = UnixStream::pair().unwrap();
        assert_eq!(Mark::of(a.as_fd()), None);
        let mark = Mark::IPV6.with(Mark::PENDING);
        mark.set(a.as_fd()).unwrap();
        let copy = a.try_clone().unwrap();
        assert_eq!(Mark::of(copy.as_fd()), Some(mark));
        assert!(mark.has(Mark::IPV6) && !mark.has(Mark::FAILED));
        mark.without(Mark::PENDING).set(a.as_fd()).unwrap();
        assert_eq!(Mark::of(copy.as_fd()), Some(Mark::IPV6));
        assert_eq!(Mark::of(b.as_fd()), None);
    }

    #[test]
    fn sockets_and_files_of_others_have_no_mark() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(Mark::of(listener.as_fd()), None);
        let (pipe, _end) = std::io::pipe().unwrap();
        assert_eq!(Mark::of(pipe.as_fd()), None);
    }
}
