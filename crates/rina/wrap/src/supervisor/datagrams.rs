//! Calls that send and receive datagrams on sockets that are flows.
//!
//! The supervisor moves the data itself, because a header is before each datagram of a relayed
//! socket. It reads the memory of the program once and uses its copy. Such a call waits for the
//! supervisor once; data of streams never passes the supervisor.

use std::os::fd::{AsFd, BorrowedFd};

use carina_seccomp::Notification;
use carina_seccomp::filter::Call as SystemCall;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::addresses::in_family;
use crate::calls::{SendTo, remote_address};
use crate::datagram_header::{self, BYTES};
use crate::mark::Mark;
use crate::socket_address;
use crate::supervisor::Supervisor;
use crate::supervisor::caller::{Caller, Part};
use crate::supervisor::message::{self, Message};

/// One call that sends or receives a datagram, as the program made it.
struct Datagram {
    parts: Vec<Part>,
    flags: i32,
    /// The message of `sendmsg` or `recvmsg`, and the address in memory at which it is.
    message: Option<(Message, u64)>,
    /// Where the length goes: `msg_len` of the first message of `sendmmsg` or `recvmmsg`.
    length_at: Option<u64>,
}

impl Datagram {
    fn read(caller: &Caller<'_>, kind: SystemCall, of: [u64; 6]) -> Result<Datagram, Errno> {
        use SystemCall::{ReceiveMessages, SendMessages};
        if matches!(kind, SystemCall::SendTo | SystemCall::ReceiveFrom) {
            let length = usize::try_from(of[2]).map_err(|_| Errno::FAULT)?;
            return Ok(Datagram {
                parts: vec![(of[1], length)],
                flags: of[3] as i32,
                message: None,
                length_at: None,
            });
        }
        let is_many = matches!(kind, SendMessages | ReceiveMessages);
        if is_many && of[2] as u32 == 0 {
            return Err(Errno::INVAL);
        }
        let message = Message::read(caller, of[1])?;
        Ok(Datagram {
            parts: message.parts(caller)?,
            flags: of[if is_many { 3 } else { 2 }] as i32,
            message: Some((message, of[1])),
            length_at: is_many.then_some(of[1] + message::BYTES as u64),
        })
    }

    /// Ends the call: `bytes` is the length of the datagram that was sent or received.
    fn result(&self, caller: &Caller<'_>, bytes: usize) -> Result<i64, Errno> {
        let Some(at) = self.length_at else {
            return Ok(bytes as i64);
        };
        caller.write(&(bytes as u32).to_ne_bytes(), at)?;
        // The program sees that one message was handled, and calls again for the others.
        Ok(1)
    }
}

impl Supervisor {
    /// Sends a datagram of a program on a flow or to a relay.
    ///
    /// # Errors
    /// As `sendto(2)`.
    pub(super) fn send_datagram(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        kind: SystemCall,
        socket: BorrowedFd<'_>,
    ) -> Result<i64, Errno> {
        let datagram = Datagram::read(caller, kind, call.arguments)?;
        let name = match &datagram.message {
            Some((message, _)) => (message.name, u64::from(message.name_length)),
            None => (call.arguments[4], call.arguments[5]),
        };
        let mut header: &[u8] = &[];
        let encoded;
        if name.0 != 0 {
            let to = caller.read_address(name.0, name.1)?;
            let to = socket_address::decoded(&to).ok_or(Errno::AFNOSUPPORT)?;
            if self.wrap.connects(socket, to) {
                self.check_identity(&caller.rights()?, call)?;
            }
            match self.wrap.send_to(caller, socket, to)? {
                SendTo::Relayed(bytes) => {
                    encoded = bytes;
                    header = &encoded;
                }
                SendTo::Connected => {}
                SendTo::Kernel => return Err(Errno::ISCONN),
            }
        } else if Mark::of(socket).is_some_and(|mark| mark.has(Mark::RELAYED)) {
            return Err(Errno::DESTADDRREQ);
        }
        let length: usize = datagram.parts.iter().map(|(_, length)| length).sum();
        if length > DATAGRAM_BYTES_MAX {
            return Err(Errno::MSGSIZE);
        }
        let mut bytes = header.to_vec();
        caller.read_parts(&datagram.parts, &mut bytes)?;
        // The call may have put another socket in the place of this one.
        let put = caller.put();
        let socket = put.as_ref().map_or(socket, AsFd::as_fd);
        match send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => datagram.result(caller, length),
            // A datagram for which there is no room is lost, as in a network.
            Err(Errno::AGAIN) if blocks(socket, datagram.flags) => datagram.result(caller, length),
            // The relay or the remote end has ended.
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Errno::NETDOWN),
            Err(error) => Err(error),
        }
    }

    /// Receives a datagram for a program. Returns `None` if the call must wait for one.
    ///
    /// # Errors
    /// As `recvfrom(2)`.
    pub(super) fn receive_datagram(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        kind: SystemCall,
        socket: BorrowedFd<'_>,
    ) -> Result<Option<i64>, Errno> {
        let mark = Mark::of(socket).ok_or(Errno::BADF)?;
        let datagram = Datagram::read(caller, kind, call.arguments)?;
        let mut flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        flags.set(RecvFlags::PEEK, datagram.flags & libc::MSG_PEEK != 0);
        let mut buffer = vec![0; BYTES + DATAGRAM_BYTES_MAX];
        let received = match recv(socket, &mut buffer[..], flags) {
            Ok((_, bytes)) => &buffer[..bytes.min(buffer.len())],
            Err(Errno::AGAIN) if blocks(socket, datagram.flags) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (sender, data) = if mark.has(Mark::RELAYED) {
            // A message without a header is the end: the relay has ended.
            let (sender, data) = datagram_header::decode(received).ok_or(Errno::NETDOWN)?;
            (Some(in_family(sender, mark.has(Mark::IPV6))), data)
        } else {
            (remote_address(socket, mark), received)
        };
        let room = caller.write_parts(&datagram.parts, data)?;
        let sender = sender.map(socket_address::encoded).unwrap_or_default();
        let is_cut = data.len() > room;
        if let Some((message, at)) = &datagram.message {
            let of_result = if is_cut { libc::MSG_TRUNC } else { 0 };
            message.write_received(caller, *at, &sender, of_result)?;
        } else {
            caller.write_sized(&sender, call.arguments[4], call.arguments[5], true)?;
        }
        let wants_all = datagram.flags & libc::MSG_TRUNC != 0;
        let bytes = if wants_all {
            data.len()
        } else {
            data.len().min(room)
        };
        datagram.result(caller, bytes).map(Some)
    }
}

/// Whether a call with these flags waits on this socket.
fn blocks(socket: BorrowedFd<'_>, flags: i32) -> bool {
    let of_socket = rustix::fs::fcntl_getfl(socket);
    flags & libc::MSG_DONTWAIT == 0
        && of_socket.is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

/// Longest datagram of UDP over IPv4, in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_507;
