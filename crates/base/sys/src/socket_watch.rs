//! Detects when sockets are closed that this process has passed to other processes, and of which it
//! has no descriptor any more.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::epoll::{Epoll, Interest};

/// A set of sockets that other processes have open.
///
/// An epoll set does not keep a file open. The kernel removes the entry of a file when its last
/// descriptor is closed, in any process and network namespace. `/proc` lists the remaining entries.
#[derive(Debug)]
pub struct SocketWatch {
    epoll: Epoll,
}

impl SocketWatch {
    /// Makes a set without sockets.
    ///
    /// # Errors
    /// The error of the kernel, usually that the process has too many open files.
    pub fn new() -> io::Result<SocketWatch> {
        Epoll::new().map(|epoll| SocketWatch { epoll })
    }

    /// Adds a socket under a token that the caller chooses. Afterwards, close all descriptors of
    /// the socket in this process: the socket counts as open while any process has a descriptor of
    /// it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        self.epoll.add(socket, token, Interest::HangUpEdge)
    }

    /// Returns the tokens of those sockets of this set that at least one process still has open.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn open(&self) -> io::Result<HashSet<u64>> {
        let fd = self.epoll.as_fd().as_raw_fd();
        let listing = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
        Ok(tokens(&listing).collect())
    }
}

/// The tokens in the description of an epoll set in `/proc/self/fdinfo`: `tfd: 5 events: 18 data:
/// 2a pos:0 …`.
fn tokens(listing: &str) -> impl Iterator<Item = u64> {
    listing.lines().filter_map(|line| {
        let (_, entry) = line.strip_prefix("tfd:")?.split_once("data:")?;
        u64::from_str_radix(entry.split_whitespace().next()?, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socketpair_stream;

    #[test]
    fn a_socket_is_open_until_its_last_descriptor_closes() {
        let watch = SocketWatch::new().unwrap();
        let (a, b) = socketpair_stream().unwrap();
        watch.add(&a, 7).unwrap();
        watch.add(&b, u64::MAX).unwrap();
        let copy = a.try_clone().unwrap();
        drop((a, b));
        assert_eq!(watch.open().unwrap(), HashSet::from([7]));
        drop(copy);
        assert_eq!(watch.open().unwrap(), HashSet::new());
    }
}
