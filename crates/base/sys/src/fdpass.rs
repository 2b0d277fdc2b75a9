//! Datagrams that carry file descriptors over a Unix `SOCK_SEQPACKET` socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Largest number of descriptors that one datagram can carry.
pub const FDS_MAX: usize = 8;

/// A datagram that [`recv_with_fds`] received.
#[derive(Debug)]
pub struct Datagram {
    /// Number of bytes written to the start of the caller's buffer; 0 at the end of file.
    pub bytes: usize,
    /// The descriptors that came with the datagram, all close-on-exec, in the order in which they
    /// were sent.
    pub fds: Vec<OwnedFd>,
}

/// Sends one datagram with up to [`FDS_MAX`] descriptors.
///
/// # Errors
/// `InvalidInput` for more than [`FDS_MAX`] descriptors or for an empty datagram, which the
/// receiver could not distinguish from the end of file; otherwise the error of the socket
/// (`WouldBlock` on a full non-blocking socket, `BrokenPipe` without a signal if the peer is gone).
pub fn send_with_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > FDS_MAX {
        return Err(invalid(format!(
            "a datagram with {} descriptors; at most {FDS_MAX} are possible",
            fds.len()
        )));
    }
    if bytes.is_empty() {
        return Err(invalid(
            "the datagram is empty: the receiver would read it as end of file".into(),
        ));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(invalid("descriptors do not fit the control buffer".into()));
    }
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(
            &socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    if sent != bytes.len() {
        return Err(io::Error::new(
            io::ErrorKind::WriteZero,
            format!(
                "only {sent} of {} bytes were sent: the socket is not a datagram socket",
                bytes.len()
            ),
        ));
    }
    Ok(())
}

/// Receives one datagram and its descriptors into `buffer`.
///
/// # Errors
/// `InvalidData` if the datagram is longer than `buffer` or carries more than [`FDS_MAX`]
/// descriptors (the rest is lost, and everything received is closed); otherwise the error of the
/// socket.
pub fn recv_with_fds(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Datagram> {
    let room = buffer.len();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            &socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(data_error(format!(
            "datagram is longer than the {room} bytes allowed"
        )));
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(data_error(format!(
            "datagram carries more than {FDS_MAX} descriptors, or this process has too many open files"
        )));
    }
    Ok(Datagram {
        bytes: received.bytes,
        fds,
    })
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn data_error(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventFd, socketpair_seqpacket};

    #[test]
    fn descriptors_arrive_in_order_and_close_on_exec() {
        let (a, b) = socketpair_seqpacket().unwrap();
        let doorbells = [EventFd::new().unwrap(), EventFd::new().unwrap()];
        doorbells[1].signal();
        send_with_fds(&a, b"two", &[doorbells[0].as_fd(), doorbells[1].as_fd()]).unwrap();
        let mut buffer = [0; 16];
        let datagram = recv_with_fds(&b, &mut buffer).unwrap();
        assert_eq!(&buffer[..datagram.bytes], b"two");
        let counts: Vec<u64> = datagram
            .fds
            .into_iter()
            .map(|fd| {
                let flags = rustix::io::fcntl_getfd(&fd).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
                EventFd::from_fd(fd).unwrap().drain()
            })
            .collect();
        assert_eq!(counts, [0, 1]);
    }

    #[test]
    fn long_datagram_is_refused_not_cut() {
        let (a, b) = socketpair_seqpacket().unwrap();
        send_with_fds(&a, &[7; 100], &[]).unwrap();
        let error = recv_with_fds(&b, &mut [0; 99]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn too_many_descriptors_are_refused_before_sending() {
        let (a, _b) = socketpair_seqpacket().unwrap();
        let fds = [a.as_fd(); FDS_MAX + 1];
        let error = send_with_fds(&a, b"x", &fds).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn closed_peer_reads_as_zero_bytes_and_writes_as_broken_pipe() {
        let (a, b) = socketpair_seqpacket().unwrap();
        drop(a);
        assert_eq!(recv_with_fds(&b, &mut [0; 8]).unwrap().bytes, 0);
        let error = send_with_fds(&b, b"x", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
