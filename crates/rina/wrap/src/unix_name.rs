//! Names of `AF_UNIX` sockets that serve as labels.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, bind, getpeername, getsockname};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::label::Label;

/// Binds a socket to the abstract name that its label encodes to.
pub(crate) fn bind_label(socket: BorrowedFd<'_>, label: Label) -> Result<(), Errno> {
    for _ in 0..ATTEMPTS {
        let name = SocketAddrUnix::new_abstract_name(label.encode(random()?).as_bytes())?;
        match bind(socket, &name) {
            Err(Errno::ADDRINUSE) => {}
            bound => return bound,
        }
    }
    Err(Errno::ADDRINUSE)
}

/// Returns the label of a socket; `None` when it has none.
pub(crate) fn label_of(socket: BorrowedFd<'_>) -> Option<Label> {
    let name = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    Label::decode(name.abstract_name()?)
}

/// Returns the label of the socket at the other end; `None` when it has none.
pub(crate) fn label_of_peer(socket: BorrowedFd<'_>) -> Option<Label> {
    let name = getpeername(socket).ok().flatten()?;
    let name = SocketAddrUnix::try_from(name).ok()?;
    Label::decode(name.abstract_name()?)
}

pub(crate) fn random() -> Result<u32, Errno> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}

/// Number of random numbers to try: with 65,536 sockets one number in 65,536 is taken.
const ATTEMPTS: usize = 8;
