//! The connection of a front end: messages that the crate `vhost` refuses are handled here, all
//! others in `handler`. Only these two modules use that crate.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{RecvFlags, recv};
use vhost::vhost_user::{BackendReqHandler, Error, Result};

use crate::features::net;
use crate::handler::{Handler, wrong};
use crate::shared::{Offer, Shared};

/// One connection of a front end.
pub(crate) struct Connection {
    handler: BackendReqHandler<Mutex<Handler>>,
    socket: UnixStream,
    shared: Arc<Shared>,
}

/// The outcome of handling a message.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The message was handled.
    Handled,
    /// The front end has closed the connection.
    Closed,
    /// The message was invalid, or the connection failed.
    Refused(Error),
}

impl Connection {
    pub(crate) fn new(socket: UnixStream, shared: Arc<Shared>) -> io::Result<Connection> {
        let handler = Handler {
            offer: shared.offer,
            shared: Arc::clone(&shared),
        };
        Ok(Connection {
            shared,
            socket: socket.try_clone()?,
            handler: BackendReqHandler::from_stream(socket, Arc::new(Mutex::new(handler))),
        })
    }

    /// Reads a message and answers it. If a message has arrived in part, waits for the rest.
    pub(crate) fn handle(&mut self) -> Outcome {
        let front = self.front();
        if let Some(front) = front
            && (front[0], front[1] & VERSION_AND_REPLY, front[2]) == (SEND_RARP, 1, 8)
        {
            return match self.announce(front[1]) {
                Ok(()) => Outcome::Handled,
                Err(error) => Outcome::Refused(error),
            };
        }
        if let Some(front) = front
            && (front[0], front[1] & VERSION_AND_REPLY, front[2]) == (NET_SET_MTU, 1, 8)
        {
            return match self.set_mtu(&front) {
                Ok(()) => Outcome::Handled,
                Err(error) => Outcome::Refused(error),
            };
        }
        let early = front.filter(|front| front[0] == SET_VRING_ENABLE);
        match self.handler.handle_request() {
            Ok(()) | Err(Error::SocketRetry(_)) => Outcome::Handled,
            Err(Error::Disconnected | Error::SocketBroken(_)) => Outcome::Closed,
            Err(Error::InactiveFeature(_)) if early.is_some() => {
                match early.map(|early| self.enable(&early)) {
                    Some(Err(error)) => Outcome::Refused(error),
                    _ => Outcome::Handled,
                }
            }
            Err(error) => Outcome::Refused(error),
        }
    }

    /// The header of the message that waits, and the first 8 bytes of its body. It serves for
    /// messages that the crate `vhost` refuses: `SET_VRING_ENABLE`, which QEMU also sends before
    /// `SET_FEATURES`, `SEND_RARP` and `NET_SET_MTU`.
    fn front(&self) -> Option<[u32; 5]> {
        let mut front = [0; FRONT_BYTES];
        let (len, _) = recv(&self.socket, &mut front[..], RecvFlags::PEEK).ok()?;
        let (words, _) = front.as_chunks::<4>();
        let mut message = [0; 5];
        for (to, word) in message.iter_mut().zip(words) {
            *to = u32::from_ne_bytes(*word);
        }
        (len == front.len()).then_some(message)
    }

    /// Handles a `SET_VRING_ENABLE` that the crate refused: enables or disables a ring.
    fn enable(&mut self, &[request, flags, _, index, num]: &[u32; 5]) -> Result<()> {
        if index as usize >= self.shared.offer.rings || num > 1 {
            return Err(Error::InvalidParam);
        }
        self.device().enable(index as usize, num == 1);
        self.acknowledge(request, flags, 0)
    }

    /// Handles `NET_SET_MTU`: sets the MTU that the driver sees. For an MTU that this device does
    /// not support, the answer is an error and the previous MTU stays. If the front end requested
    /// no answer, the connection is closed instead.
    fn set_mtu(&mut self, &[request, flags, _, low, high]: &[u32; 5]) -> Result<()> {
        let mut message = [0; FRONT_BYTES];
        let read = self.socket.read_exact(&mut message);
        read.map_err(Error::SocketBroken)?;
        let Offer {
            features, mtu_max, ..
        } = self.shared.offer;
        if features & net::MTU == 0 {
            return Err(Error::InvalidOperation("an MTU, which was not offered"));
        }
        let mtu = u64::from(low) | u64::from(high) << 32;
        // The minimum of IPv4. (RFC 791 §3.2)
        if (68..=u64::from(mtu_max)).contains(&mtu) {
            self.device().set_mtu(mtu as u16);
            self.shared.changed.signal();
            return self.acknowledge(request, flags, 0);
        }
        if flags & NEED_REPLY == 0 {
            return Err(wrong(format!("MTU {mtu}: must be 68 to {mtu_max}")));
        }
        self.acknowledge(request, flags, 1)
    }

    /// Handles `SEND_RARP`: a migrated guest is to be announced, because its driver does not do so.
    /// The body begins with the bytes of the guest's MAC address, independent of the byte order.
    fn announce(&mut self, flags: u32) -> Result<()> {
        let mut message = [0; FRONT_BYTES];
        let read = self.socket.read_exact(&mut message);
        read.map_err(Error::SocketBroken)?;
        let mut mac = [0; 6];
        mac.copy_from_slice(&message[12..18]);
        // A group address cannot be the address of a station. (IEEE 802-2014 §8.2.2)
        if mac[0] & 1 != 0 {
            return Err(Error::InvalidParam);
        }
        self.device().announce(mac);
        self.shared.changed.signal();
        self.acknowledge(SEND_RARP, flags, 0)
    }

    fn device(&self) -> MutexGuard<'_, crate::device::Device> {
        let lock = self.shared.device.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whether a message succeeded, if its flags request that. A `status` of 0 means
    /// success.
    fn acknowledge(&mut self, request: u32, flags: u32, status: u32) -> Result<()> {
        if flags & NEED_REPLY == 0 {
            return Ok(());
        }
        // Flags: version 1, and reply; a body of 8 bytes follows.
        let reply = [request, 5, 8, status, 0].map(u32::to_ne_bytes);
        let written = self.socket.write_all(reply.as_flattened());
        written.map_err(Error::SocketBroken)
    }
}

/// Numbers of messages. (vhost-user, "Front-end message types")
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;
const NET_SET_MTU: u32 = 20;

/// Length of a message's header and a body of 8 bytes.
const FRONT_BYTES: usize = 20;

/// Flag bits of a message: the version, which is 1, and the reply bit.
const VERSION_AND_REPLY: u32 = 7;

/// Flag of a message that requests an acknowledgement.
const NEED_REPLY: u32 = 1 << 3;

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
