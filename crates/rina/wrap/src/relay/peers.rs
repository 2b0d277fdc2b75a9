//! The peers of a relayed socket, each with its flow.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use carina_sys::{Epoll, Interest};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::addresses::ephemeral_port;
use crate::drops::{DropReason, Drops};
use crate::label::Label;
use crate::node::DatagramAllocation;
use crate::sockets::events_now;
use crate::unix_name::bind_label;

/// All peers of one socket, by the address that the program has for each.
pub(super) struct Peers {
    /// The address of the program's socket.
    local: SocketAddr,
    peers: BTreeMap<u64, Peer>,
    tokens: BTreeMap<SocketAddr, u64>,
    last_token: u64,
    sweep_at: Option<Instant>,
}

struct Peer {
    address: SocketAddr,
    state: State,
    used_at: Instant,
    /// Whether the peer may still give its own address: none of its datagrams was read.
    is_new: bool,
}

enum State {
    /// The node has not answered the request yet; the program's datagrams wait.
    Requested(DatagramAllocation, VecDeque<Vec<u8>>),
    Open(OwnedFd),
    /// The flow was refused: datagrams to the peer are dropped until this time.
    Refused(Instant),
}

impl Peers {
    /// Makes the empty set; tokens of peers are greater than `last_token`.
    pub(super) fn new(local: SocketAddr, last_token: u64) -> Peers {
        Peers {
            local,
            peers: BTreeMap::new(),
            tokens: BTreeMap::new(),
            last_token,
            sweep_at: None,
        }
    }

    pub(super) fn have_room(&self) -> bool {
        self.peers.len() < PEERS_MAX
    }

    /// Returns this address, or the address with another port if a peer has it already: flows of
    /// two programs that give the same name must not be taken for one.
    pub(super) fn free_address(&self, address: SocketAddr) -> SocketAddr {
        let mut free = address;
        while self.tokens.contains_key(&free) {
            let Ok(port) = ephemeral_port() else {
                break;
            };
            free.set_port(port);
        }
        free
    }

    /// Returns the flow of a peer that has requested it and of which no datagram was read.
    pub(super) fn flow_of_new(&self, token: u64) -> Option<&OwnedFd> {
        match self.peers.get(&token) {
            Some(Peer {
                state: State::Open(flow),
                is_new: true,
                ..
            }) => Some(flow),
            _ => None,
        }
    }

    /// Gives a new peer another address, or leaves it the one that it has.
    pub(super) fn settle(&mut self, token: u64, address: Option<SocketAddr>) {
        let address = address.map(|address| self.free_address(address));
        let Some(peer) = self.peers.get_mut(&token) else {
            return;
        };
        peer.is_new = false;
        if let Some(address) = address {
            self.tokens.remove(&peer.address);
            self.tokens.insert(address, token);
            peer.address = address;
        }
    }

    /// Adds a peer whose flow exists. The flow ends if the set is full.
    pub(super) fn add_open(
        &mut self,
        epoll: &Epoll,
        address: SocketAddr,
        flow: OwnedFd,
        now: Instant,
    ) {
        let token = self.last_token + 1;
        if self.have_room() && epoll.add(&flow, token, Interest::Read).is_ok() {
            self.insert(address, State::Open(flow), now);
        }
    }

    fn insert(&mut self, address: SocketAddr, state: State, now: Instant) {
        self.last_token += 1;
        let peer = Peer {
            address,
            is_new: matches!(state, State::Open(_)),
            state,
            used_at: now,
        };
        self.tokens.insert(address, self.last_token);
        self.peers.insert(self.last_token, peer);
        self.sweep_at.get_or_insert(now + IDLE);
    }

    /// Sends a datagram to a peer, or keeps it until the peer's flow exists. False if there is no
    /// such peer.
    pub(super) fn send(
        &mut self,
        to: SocketAddr,
        datagram: &[u8],
        now: Instant,
        drops: &mut Drops,
    ) -> bool {
        let Some(token) = self.tokens.get(&to).copied() else {
            return false;
        };
        let Some(peer) = self.peers.get_mut(&token) else {
            return false;
        };
        peer.used_at = now;
        match &mut peer.state {
            State::Requested(_, waiting) if waiting.len() < WAITING_MAX => {
                waiting.push_back(datagram.to_vec());
            }
            State::Requested(..) => drops.add(DropReason::FlowPending, 1),
            State::Open(flow) => {
                if !send_one(flow, datagram, drops) {
                    // The flow has ended: the next request decides whether there is another.
                    self.remove(token);
                    return false;
                }
            }
            State::Refused(until) if *until <= now => {
                self.remove(token);
                return false;
            }
            State::Refused(_) => drops.add(DropReason::FlowRefused, 1),
        }
        true
    }

    /// Adds a peer whose flow was requested; `datagram` is sent when the flow exists.
    pub(super) fn request(
        &mut self,
        epoll: &Epoll,
        to: SocketAddr,
        started: Result<DatagramAllocation, Errno>,
        datagram: &[u8],
        now: Instant,
        drops: &mut Drops,
    ) {
        let token = self.last_token + 1;
        let state = match started {
            Ok(allocation) if epoll.add(&allocation, token, Interest::Read).is_ok() => {
                State::Requested(allocation, VecDeque::from([datagram.to_vec()]))
            }
            _ => {
                drops.add(DropReason::FlowRefused, 1);
                State::Refused(now + REFUSED_FOR)
            }
        };
        self.insert(to, state, now);
    }

    /// Handles an event of a peer: datagrams wait, or the node has answered. `deliver` gets each
    /// datagram with the peer's address.
    pub(super) fn handle(
        &mut self,
        epoll: &Epoll,
        token: u64,
        buffer: &mut [u8],
        now: Instant,
        drops: &mut Drops,
        mut deliver: impl FnMut(SocketAddr, &[u8], &mut Drops),
    ) {
        let Some(peer) = self.peers.get_mut(&token) else {
            return;
        };
        match &mut peer.state {
            State::Requested(allocation, waiting) => match allocation.try_finish() {
                Ok(None) => {
                    // A second request, by another name, has a connection of its own.
                    let _ = epoll.add(&*allocation, token, Interest::Read);
                }
                Ok(Some(flow)) => {
                    // A peer on this host reads the address from the label.
                    let _ = bind_label(flow.as_fd(), label(self.local, peer.address));
                    let unsent = waiting
                        .iter()
                        .skip_while(|datagram| send_one(&flow, datagram, drops));
                    let unsent = unsent.count();
                    drops.add(DropReason::FlowEnded, unsent);
                    if unsent == 0 && epoll.add(&flow, token, Interest::Read).is_ok() {
                        peer.state = State::Open(flow);
                    } else {
                        self.remove(token);
                    }
                }
                Err(_) => {
                    drops.add(DropReason::FlowRefused, waiting.len());
                    peer.state = State::Refused(now + REFUSED_FOR);
                }
            },
            State::Open(flow) => {
                let deliver = |datagram: &[u8]| deliver(peer.address, datagram, drops);
                let read = read_some(flow, buffer, deliver);
                if read.count > 0 {
                    peer.used_at = now;
                }
                if read.is_over {
                    self.remove(token);
                }
            }
            State::Refused(_) => {}
        }
    }

    /// Takes the flow of a peer out of the set; `None` if the peer has no open flow.
    pub(super) fn take(&mut self, epoll: &Epoll, address: SocketAddr) -> Option<OwnedFd> {
        let token = *self.tokens.get(&address)?;
        match &self.peers.get(&token)?.state {
            State::Open(flow) => epoll.del(flow).ok()?,
            State::Requested(..) | State::Refused(_) => return None,
        }
        self.tokens.remove(&address);
        match self.peers.remove(&token)?.state {
            State::Open(flow) => Some(flow),
            State::Requested(..) | State::Refused(_) => None,
        }
    }

    fn remove(&mut self, token: u64) {
        if let Some(peer) = self.peers.remove(&token) {
            self.tokens.remove(&peer.address);
        }
    }

    /// Whether datagrams wait for flows.
    pub(super) fn have_waiting(&self) -> bool {
        let mut peers = self.peers.values();
        peers.any(|peer| matches!(peer.state, State::Requested(..)))
    }

    /// When idle peers are looked for next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Ends the flows of peers that have exchanged no datagram for a minute.
    pub(super) fn remove_idle(&mut self, now: Instant) {
        if self.sweep_at.is_none_or(|at| now < at) {
            return;
        }
        self.peers.retain(|_, peer| now < peer.used_at + IDLE);
        let peers = &self.peers;
        self.tokens.retain(|_, token| peers.contains_key(token));
        self.sweep_at = (!self.peers.is_empty()).then_some(now + IDLE / 4);
    }
}

fn label(local: SocketAddr, peer: SocketAddr) -> Label {
    let is_on_loopback = local.ip().is_unspecified() && peer.ip().is_loopback();
    let ip = if is_on_loopback {
        peer.ip()
    } else {
        local.ip()
    };
    Label {
        this: SocketAddr::new(ip, local.port()),
        other: Some(peer),
    }
}

/// Result of [`read_some`].
struct Read {
    count: usize,
    is_over: bool,
}

fn read_some(flow: &OwnedFd, buffer: &mut [u8], mut deliver: impl FnMut(&[u8])) -> Read {
    let mut count = 0;
    while count < BURST {
        match recv(flow, &mut *buffer, RecvFlags::DONTWAIT) {
            // An empty SDU and the end of the flow differ only by the hang-up.
            Ok((_, 0)) if has_ended(flow) => {
                return Read {
                    count,
                    is_over: true,
                };
            }
            Ok((_, bytes)) => {
                count += 1;
                deliver(&buffer[..bytes]);
            }
            Err(Errno::INTR) => {}
            Err(error) => {
                let is_over = error != Errno::AGAIN;
                return Read { count, is_over };
            }
        }
    }
    Read {
        count,
        is_over: false,
    }
}

fn has_ended(flow: &OwnedFd) -> bool {
    events_now(flow.as_fd()).is_ok_and(|events| events.contains(PollFlags::HUP))
}

/// Sends a datagram as an SDU; false if the flow has ended. A datagram for which there is no room
/// is lost, and so is an empty one, which the reader of a flow would take for its end.
fn send_one(flow: &OwnedFd, datagram: &[u8], drops: &mut Drops) -> bool {
    if datagram.is_empty() {
        drops.add(DropReason::Empty, 1);
        return true;
    }
    match send(flow, datagram, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) => true,
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => false,
        Err(_) => {
            drops.add(DropReason::PeerFull, 1);
            true
        }
    }
}

/// Largest number of peers of one socket.
const PEERS_MAX: usize = 1024;

/// Largest number of datagrams to one peer that wait for its flow.
const WAITING_MAX: usize = 16;

/// Largest number of datagrams of one peer that are read in a row.
const BURST: usize = 64;

/// How long a peer may exchange no datagram before its flow is given back.
const IDLE: Duration = Duration::from_secs(60);

/// For how long datagrams to a peer are dropped after its flow was refused.
const REFUSED_FOR: Duration = Duration::from_secs(1);
