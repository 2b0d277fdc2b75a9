//! Marks: what else is known of a socket that is a flow, kept by the kernel beside its label.
//!
//! The kernel keeps an integer for each socket, `SO_INCOMING_CPU`, that `AF_UNIX` sockets have no
//! use for. It goes wherever the descriptor goes and costs one system call to read.
//!
//! ```text
//! bits 30..16  0x2CA1   the magic number: this socket is a flow, or a registration
//! bit  0       IPV6     the program made it with AF_INET6
//! bit  1       LISTENER it is a registration, which the program accepts flows from
//! bit  2       PENDING  the flow was asked for and is not known to be there
//! bit  3       FAILED   the flow was refused after `connect` had given EINPROGRESS
//! bit  4       NODELAY  the program has set TCP_NODELAY
//! bit  5       REUSEPORT  the program has set SO_REUSEPORT
//! bit  6       V6ONLY   the program has set IPV6_V6ONLY
//! bit  7       UNTOLD   a signal kept the result of `connect` or `bind` from the program
//! ```

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::sockopt;

/// The mark of one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u32);

impl Mark {
    /// The program made the socket with `AF_INET6`.
    pub const IPV6: Mark = Mark(1);
    /// The socket is a registration.
    pub const LISTENER: Mark = Mark(1 << 1);
    /// The flow was asked for and is not known to be there.
    pub const PENDING: Mark = Mark(1 << 2);
    /// The flow was refused.
    pub const FAILED: Mark = Mark(1 << 3);
    /// The program has set `TCP_NODELAY`.
    pub const NODELAY: Mark = Mark(1 << 4);
    /// The program has set `SO_REUSEPORT`.
    pub const REUSEPORT: Mark = Mark(1 << 5);
    /// The program has set `IPV6_V6ONLY`.
    pub const V6ONLY: Mark = Mark(1 << 6);
    /// The call that made the socket succeeded, and a signal kept that from the program.
    pub const UNTOLD: Mark = Mark(1 << 7);
    /// No bit.
    pub const NONE: Mark = Mark(0);

    /// The mark of a socket; `None` when it is not one of ours.
    pub fn of(socket: BorrowedFd<'_>) -> Option<Mark> {
        let value = sockopt::socket_incoming_cpu(socket).ok()?;
        (value & !BITS == MAGIC).then_some(Mark(value & BITS))
    }

    /// Marks a socket.
    ///
    /// # Errors
    /// The kernel's refusal: not a socket.
    pub fn set(self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        sockopt::set_socket_incoming_cpu(socket, MAGIC | self.0)
    }

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Mark) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`.
    #[must_use]
    pub fn with(self, other: Mark) -> Mark {
        Mark(self.0 | other.0)
    }

    /// With the bits of `other` where `condition` holds.
    #[must_use]
    pub fn with_if(self, condition: bool, other: Mark) -> Mark {
        if condition { self.with(other) } else { self }
    }

    /// Without the bits of `other`.
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
