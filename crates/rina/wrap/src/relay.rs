//! The relay of a datagram socket with many peers: each peer is a flow of its own.
//!
//! ```text
//!  program == SOCK_SEQPACKET pair == Relay == flow == peer a
//!     header: the peer's address       |===== flow == peer b
//!                                      |===== UDP socket: addresses that no rule makes flows
//! ```
//!
//! The program's end of the pair stands in the place of its socket, through `fork` and `exec`. The
//! relay ends when the last copy of that end is closed; its flows and its name end with it.

mod peers;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use carina_api::ipc::{Mode, Reply, Request};
use carina_sys::{Epoll, Interest, recv_with_fds, send_with_fds};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvfrom, recvmsg, sendmsg, sendto,
};

use crate::addresses::in_family;
use crate::calls::Wrap;
use crate::datagram_header;
use crate::drops::{DropReason, Drops};
use crate::node;
use crate::relay::peers::Peers;
use crate::relay_start::{Start, Started};
use crate::rule::{Decision, Direction};
use crate::unix_name::label_of_peer;

/// Runs the relay at the end `program` of a pair until the program has closed its socket.
///
/// # Errors
/// The kernel's refusal; the first message is not one of a wrapped program.
pub fn serve(program: OwnedFd, wrap: Wrap) -> io::Result<()> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let mut first = recv_with_fds(&program, &mut buffer)?;
    let start: Start = serde_json::from_slice(&buffer[..first.bytes])?;
    let relay = Relay::new(program.as_fd(), wrap, start, first.fds.pop());
    let error = relay.as_ref().err().map(|error| error.raw_os_error());
    send_with_fds(&program, &serde_json::to_vec(&Started { error })?, &[])?;
    relay?.run(&mut buffer)
}

/// The relay of one socket.
struct Relay<'a> {
    program: BorrowedFd<'a>,
    wrap: Wrap,
    start: Start,
    epoll: Epoll,
    registration: Option<OwnedFd>,
    /// The socket for addresses that no rule makes flows; made when it is needed first.
    udp: Option<UdpSocket>,
    peers: Peers,
    drops: Drops,
}

impl<'a> Relay<'a> {
    fn new(
        program: BorrowedFd<'a>,
        wrap: Wrap,
        start: Start,
        descriptor: Option<OwnedFd>,
    ) -> Result<Relay<'a>, Errno> {
        let system = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::NOBUFS);
        let epoll = Epoll::new().map_err(system)?;
        epoll
            .add(program, PROGRAM, Interest::Read)
            .map_err(system)?;
        let registration = match &start.name {
            Some(name) => Some(node::register_datagrams(
                wrap.node(),
                name,
                start.dif.as_ref(),
            )?),
            None => None,
        };
        if let Some(registration) = &registration {
            let added = epoll.add(registration, REGISTRATION, Interest::Read);
            added.map_err(system)?;
        }
        let mut relay = Relay {
            program,
            peers: Peers::new(start.local, LAST_FIXED),
            drops: Drops::beside(&wrap.settings().names),
            wrap,
            start,
            epoll,
            registration,
            udp: None,
        };
        match (relay.start.peer, descriptor) {
            (Some(peer), Some(flow)) => {
                relay
                    .peers
                    .add_open(&relay.epoll, peer, flow, Instant::now());
            }
            (None, Some(socket)) => relay.use_udp(socket.into()).map_err(system)?,
            (_, None) => {}
        }
        Ok(relay)
    }

    fn run(mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            let deadlines = [self.peers.deadline(), self.drops.deadline()];
            let limit = deadlines.into_iter().flatten().min().map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now());
                left.as_nanos() as u64
            });
            self.epoll.wait(&mut ready, limit)?;
            let now = Instant::now();
            for event in &ready {
                let is_open = match event.token {
                    PROGRAM => self.read_program(buffer, now),
                    REGISTRATION => self.incoming(now),
                    UDP => {
                        self.read_udp(buffer);
                        true
                    }
                    peer => {
                        self.settle(peer);
                        let deliver = |address, datagram: &[u8], drops: &mut Drops| {
                            to_program(self.program, address, datagram, drops);
                        };
                        let drops = &mut self.drops;
                        self.peers
                            .handle(&self.epoll, peer, buffer, now, drops, deliver);
                        true
                    }
                };
                if !is_open {
                    return self.flush(buffer);
                }
            }
            self.peers.remove_idle(now);
            self.drops.write_if_due(now);
        }
    }

    /// Sends the datagrams that the program had sent before it closed its socket, and that wait for
    /// flows.
    fn flush(mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.registration = None;
        self.udp = None;
        self.epoll.del(self.program)?;
        let (limit, mut ready) = (Instant::now() + FLUSH_LIMIT, Vec::new());
        while self.peers.have_waiting() {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.epoll.wait(&mut ready, Some(left.as_nanos() as u64))?;
            for event in &ready {
                let now = Instant::now();
                let drops = &mut self.drops;
                self.peers
                    .handle(&self.epoll, event.token, buffer, now, drops, |_, _, _| {});
            }
        }
        Ok(())
    }

    /// Forwards datagrams of the program. False when the program has closed its socket.
    fn read_program(&mut self, buffer: &mut [u8], now: Instant) -> bool {
        for _ in 0..BURST {
            match from_program(self.program, buffer) {
                Ok((0, _)) => return false,
                Ok((bytes, answer)) => {
                    let message = &buffer[..bytes];
                    if let Some((to, datagram)) = datagram_header::decode(message) {
                        self.send(to, datagram, now);
                    } else if let Some(peer) = datagram_header::decode_connect(message)
                        && let Some(answer) = answer
                    {
                        self.hand_over(peer, &answer);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Passes the flow of a peer to the program, which connects its socket to this peer, and
    /// withdraws the name, which another socket of the program may then get. Without such a flow
    /// the answer has no descriptor.
    fn hand_over(&mut self, peer: SocketAddr, answer: &OwnedFd) {
        let flow = self.peers.take(&self.epoll, peer);
        if flow.is_some()
            && let Some(registration) = self.registration.take()
        {
            let _ = self.epoll.del(&registration);
            node::unregister(&registration);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let flows: Vec<_> = flow.iter().map(AsFd::as_fd).collect();
        if !flows.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&flows));
        }
        // The program made the socket for the answer: it must not be able to stop this thread.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = sendmsg(answer, &[IoSlice::new(b"f")], &mut control, flags);
    }

    /// Sends one datagram to a peer. Like a network of datagrams, drops what cannot be sent.
    fn send(&mut self, to: SocketAddr, datagram: &[u8], now: Instant) {
        if self.peers.send(to, datagram, now, &mut self.drops) {
            return;
        }
        let decision = self.wrap.decide(Direction::Connect, to);
        match decision {
            Ok(Decision::Flow { name, dif }) => {
                let Ok(local) = self.wrap.name_of_address(self.start.local) else {
                    return;
                };
                if !self.peers.have_room() {
                    return self.drops.add(DropReason::TooManyPeers, 1);
                }
                let request = node::DatagramRequest { local, name, dif };
                let allocation = node::DatagramAllocation::start(self.wrap.node(), request);
                let drops = &mut self.drops;
                self.peers
                    .request(&self.epoll, to, allocation, datagram, now, drops);
            }
            Ok(Decision::Kernel) => {
                let sent = self.udp_for(to).is_ok_and(|udp| {
                    let to = to_family_of(udp, to);
                    sendto(udp, datagram, SendFlags::DONTWAIT, &to).is_ok()
                });
                self.drops.add(DropReason::Kernel, usize::from(!sent));
            }
            Ok(Decision::Refuse) | Err(_) => self.drops.add(DropReason::RefusedByRule, 1),
        }
    }

    /// Accepts flows to the registered name. False when the registration has ended.
    fn incoming(&mut self, now: Instant) -> bool {
        let Some(registration) = &self.registration else {
            return true;
        };
        for _ in 0..BURST {
            let reply = match node::receive(registration.as_fd(), RecvFlags::DONTWAIT) {
                Ok(Some(reply)) => reply,
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Ok(None) | Err(_) => return false,
            };
            match reply {
                (Reply::FlowRequest(asked), _) => {
                    let accept = self.peers.have_room();
                    let answer = Request::Respond {
                        request: asked.request,
                        accept,
                        reason: (!accept).then(|| "the socket has too many peers".to_owned()),
                        mode: Mode::Socket,
                        membarrier: false,
                    };
                    if node::send(registration.as_fd(), &answer, &[]).is_err() {
                        return false;
                    }
                }
                (Reply::Flow(flow), Some(end)) => {
                    let is_six = self.start.is_six;
                    let address = self.wrap.address_of_peer(flow.remote.as_str(), is_six);
                    let address = self.peers.free_address(address);
                    self.peers.add_open(&self.epoll, address, end, now);
                }
                _ => {}
            }
        }
        true
    }

    /// Takes the address of a peer from the label of its socket, if the peer is a program on this
    /// host that uses the loopback, and a rule makes flows of such addresses. The peer has bound
    /// the label before it sent a datagram.
    fn settle(&mut self, peer: u64) {
        let Some(flow) = self.peers.flow_of_new(peer) else {
            return;
        };
        let address = label_of_peer(flow.as_fd())
            .map(|label| SocketAddr::new(label.this.ip().to_canonical(), label.this.port()))
            .filter(|address| address.ip().is_loopback())
            .filter(|address| {
                let decision = self.wrap.decide(Direction::Connect, *address);
                matches!(decision, Ok(Decision::Flow { .. }))
            });
        self.peers.settle(peer, address);
    }

    fn read_udp(&mut self, buffer: &mut [u8]) {
        let Some(udp) = &self.udp else {
            return;
        };
        for _ in 0..BURST {
            // The program may have the same socket: its own flags stay as they are.
            match recvfrom(udp, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((_, bytes, from)) => {
                    if let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) {
                        to_program(self.program, from, &buffer[..bytes], &mut self.drops);
                    }
                }
                // A peer has refused an earlier datagram.
                Err(Errno::CONNREFUSED | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn udp_for(&mut self, to: SocketAddr) -> io::Result<&UdpSocket> {
        if self.udp.is_none() {
            let any: SocketAddr = match to {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            self.use_udp(UdpSocket::bind(any)?)?;
        }
        self.udp
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn use_udp(&mut self, udp: UdpSocket) -> io::Result<()> {
        self.epoll.add(&udp, UDP, Interest::Read)?;
        self.udp = Some(udp);
        Ok(())
    }
}

/// An IPv6 socket takes IPv4 addresses as IPv4-mapped ones.
fn to_family_of(udp: &UdpSocket, to: SocketAddr) -> SocketAddr {
    in_family(to, udp.local_addr().is_ok_and(|local| local.is_ipv6()))
}

/// Receives one message of the program, with the descriptor that it may carry. Returns 0 bytes when
/// the program has closed its socket.
fn from_program(
    program: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg(program, &mut parts, &mut control, flags)?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = message {
            descriptor = rights.next();
        }
    }
    Ok((received.bytes, descriptor))
}

/// Gives the program a datagram. If the program's socket has no room, the datagram is lost, as on a
/// UDP socket.
fn to_program(program: BorrowedFd<'_>, from: SocketAddr, datagram: &[u8], drops: &mut Drops) {
    let header = datagram_header::encode(from);
    let parts = [IoSlice::new(&header), IoSlice::new(datagram)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(program, &parts, &mut SendAncillaryBuffer::default(), flags);
    drops.add(DropReason::ProgramFull, usize::from(sent.is_err()));
}

/// Tokens in the epoll set; peers have greater ones.
const PROGRAM: u64 = 0;
const REGISTRATION: u64 = 1;
const UDP: u64 = 2;
const LAST_FIXED: u64 = UDP;

/// Largest number of datagrams that are moved in a row, before other sockets are looked at.
const BURST: usize = 64;

/// Longest message of the program: a header and the longest datagram.
const MESSAGE_BYTES_MAX: usize = datagram_header::BYTES + (64 << 10);

/// Longest time for which datagrams wait for flows after the program has closed its socket.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
