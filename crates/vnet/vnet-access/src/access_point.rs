//! The access point as a state machine: users' datagrams on one side, the network's packets on the
//! other.
//!
//! ```text
//!   datagram -> [cookie, limit] -> handshake by key --- a user -----> own address? -> rate
//!                               -> session by index -'     |           -> packet into the network
//!                                                          `- a guest -> request, nothing else
//! ```
//!
//! The access point identifies a user by the public key of the user's system. Each user has one
//! address. Packets from another address are dropped, and so are packets to an address whose user
//! has not joined. Packets from a tunnel get only into this network, because each state machine
//! serves one network.

mod echo;
mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, TunnResult};
use boringtun::x25519;
use carina_time::{Duration, Instant};
use carina_wire::inet::Ipv4Header;

use self::echo::echo_reply;
use self::peer::Peer;
use crate::control::{POINT, Reply, Request, USER, message, packet};
use crate::discard::{Discard, Discards};
use crate::key::{PrivateKey, PublicKey};
use crate::passage::Passage;
use crate::tunnel::{BUFFER_BYTES, Given, INDEX_MASK, Tunnel};
use crate::waiting::UserQueue;

/// A user who has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Public key of the user's system.
    pub key: PublicKey,
    /// IPv4 address that the user has inside the network.
    pub address: Ipv4Addr,
    /// Rate that the user may send and receive, bits a second in each direction.
    pub rate_bps: u64,
    /// Which packets the user may send and receive.
    pub passage: Passage,
}

/// What the access point knows about a user's system from the datagrams and packets of its tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSeen {
    /// Address and port from which the system last sent a valid datagram; `None` if there was none.
    pub from: Option<SocketAddr>,
    /// Seconds since the last handshake with the system; `None` if there is no session.
    pub handshake_s: Option<u64>,
    /// Bytes of the packets that the system has sent into the network.
    pub sent_bytes: u64,
    /// Bytes of the packets that the network has sent to the system.
    pub received_bytes: u64,
}

/// Receives what the state machine of an access point emits: datagrams to users, packets into the
/// network, and requests of users.
pub trait Sink {
    /// Sends a datagram; returns false if there is no room for it.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool;
    /// Delivers an IPv4 packet to the network's node; returns false if there is no room for it.
    fn deliver(&mut self, packet: &[u8]) -> bool;
    /// Passes on a request. `at` is the index for the answer by [`AccessPoint::reply`], and the
    /// source address. Returns false if too many requests are waiting.
    fn request(&mut self, at: (u32, IpAddr), key: PublicKey, request: Request) -> bool;
}

/// The state machine of an access point.
pub struct AccessPoint {
    secret: x25519::StaticSecret,
    public: x25519::PublicKey,
    own: PrivateKey,
    /// The access point's own address, at which it answers echo requests.
    address: Ipv4Addr,
    mtu: usize,
    limiter: Arc<RateLimiter>,
    peers: BTreeMap<PublicKey, Peer>,
    by_address: BTreeMap<Ipv4Addr, PublicKey>,
    guests: BTreeMap<PublicKey, Guest>,
    by_index: BTreeMap<u32, PublicKey>,
    next_index: u32,
    /// Public keys of the users for whom packets wait because of the rate limit.
    backlogged: BTreeSet<PublicKey>,
    /// Number of packets that were marked with "congestion experienced".
    marked: u64,
    discards: Discards,
    buffer: Vec<u8>,
}

/// A guest: a system that knows the access point's key, but has not shown a valid token yet.
#[derive(Debug)]
struct Guest {
    tunnel: Tunnel,
    index: u32,
    from: SocketAddr,
    since: Instant,
}

impl AccessPoint {
    /// An access point without users.
    #[must_use]
    pub fn new(key: &PrivateKey, address: Ipv4Addr, mtu: u16) -> AccessPoint {
        let secret = key.x25519();
        let public = x25519::PublicKey::from(&secret);
        AccessPoint {
            limiter: Arc::new(RateLimiter::new(&public, HANDSHAKES_A_SECOND)),
            secret,
            public,
            own: key.clone(),
            address,
            mtu: usize::from(mtu),
            peers: BTreeMap::new(),
            by_address: BTreeMap::new(),
            guests: BTreeMap::new(),
            by_index: BTreeMap::new(),
            next_index: 1,
            backlogged: BTreeSet::new(),
            marked: 0,
            discards: Discards::default(),
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Sets the joined users. Sessions of users who stay continue.
    pub fn set_peers(&mut self, peers: &[PeerConfig]) {
        let wanted: BTreeMap<PublicKey, &PeerConfig> =
            peers.iter().map(|peer| (peer.key, peer)).collect();
        let gone: Vec<PublicKey> = self
            .peers
            .keys()
            .copied()
            .filter(|key| !wanted.contains_key(key))
            .collect();
        for key in gone {
            if let Some(mut peer) = self.peers.remove(&key) {
                self.by_index.remove(&peer.index);
                self.backlogged.remove(&key);
                self.discards.add(Discard::NoUser, peer.waiting() as u64);
                for queue in [&mut peer.up, &mut peer.down] {
                    self.marked += queue.take_counts(&mut self.discards);
                }
            }
        }
        for (key, config) in wanted {
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.up.set_rate(config.rate_bps);
                peer.down.set_rate(config.rate_bps);
                peer.config = config.clone();
                continue;
            }
            let index = self.free_index(key);
            let peer = Peer {
                tunnel: Tunnel::new(&self.own, key, index, Some(KEEPALIVE_S)),
                index,
                up: UserQueue::new(config.rate_bps, Discard::RateUp),
                down: UserQueue::new(config.rate_bps, Discard::RateDown),
                seen: PeerSeen::default(),
                config: config.clone(),
            };
            self.peers.insert(key, peer);
        }
        let addresses = self.peers.values();
        self.by_address = addresses
            .map(|address| (address.config.address, address.config.key))
            .collect();
    }

    fn free_index(&mut self, key: PublicKey) -> u32 {
        loop {
            let index = self.next_index & INDEX_MASK;
            self.next_index = self.next_index.wrapping_add(1);
            if index != 0 && !self.by_index.contains_key(&index) {
                self.by_index.insert(index, key);
                return index;
            }
        }
    }

    /// Processes a WireGuard datagram that arrived at the access point's UDP port: sends any reply,
    /// and delivers any IP packet in it.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) {
        let done = self.datagram(now, from, datagram, sink);
        if let Err(reason) = done {
            self.discards.note(reason);
        }
    }

    fn datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Discard> {
        let checked = self
            .limiter
            .verify_packet(Some(from.ip()), datagram, &mut self.buffer);
        let index = match checked {
            Ok(Packet::HandshakeInit(init)) => {
                let half = parse_handshake_anon(&self.secret, &self.public, &init);
                let half = half.map_err(|_| Discard::Handshake)?;
                let key = PublicKey(half.peer_static_public);
                return self.handshake(now, from, datagram, key, sink);
            }
            Ok(Packet::HandshakeResponse(it)) => it.receiver_idx,
            Ok(Packet::PacketCookieReply(it)) => it.receiver_idx,
            Ok(Packet::PacketData(it)) => it.receiver_idx,
            Err(TunnResult::WriteToNetwork(cookie)) => {
                sink.send(from, cookie);
                return Err(Discard::UnderLoad);
            }
            Err(_) => return Err(Discard::NotWireguard),
        };
        let index = index >> 8;
        let key = *self.by_index.get(&index).ok_or(Discard::Session)?;
        match self.peers.get_mut(&key).filter(|peer| peer.index == index) {
            Some(peer) => {
                let point = (self.mtu, &mut self.buffer[..]);
                let received = peer.receive(now, from, datagram, point, sink);
                if peer.waiting() > 0 {
                    self.backlogged.insert(key);
                }
                received
            }
            None => self.guest_receive(index, key, from, datagram, sink),
        }
    }

    /// Processes the first message of a handshake, of a user or a guest.
    fn handshake(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        key: PublicKey,
        sink: &mut impl Sink,
    ) -> Result<(), Discard> {
        if key == self.own.public() {
            return Err(Discard::OwnKey);
        }
        if let Some(peer) = self.peers.get_mut(&key) {
            return peer.receive(now, from, datagram, (self.mtu, &mut self.buffer), sink);
        }
        if !self.guests.contains_key(&key) {
            let others = self.guests.values();
            let of_source = others.filter(|other| other.from.ip() == from.ip()).count();
            if self.guests.len() >= GUESTS_MAX || of_source >= GUESTS_OF_SOURCE_MAX {
                return Err(Discard::Guests);
            }
            let index = self.free_index(key);
            let guest = Guest {
                tunnel: Tunnel::new(&self.own, key, index, None),
                index,
                from,
                since: now,
            };
            self.guests.insert(key, guest);
        }
        let index = self.guests[&key].index;
        self.guest_receive(index, key, from, datagram, sink)
    }

    fn guest_receive(
        &mut self,
        index: u32,
        key: PublicKey,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Discard> {
        let guest = self
            .guests
            .get_mut(&key)
            .filter(|guest| guest.index == index);
        let guest = guest.ok_or(Discard::Session)?;
        let mut outcome = Ok(());
        guest
            .tunnel
            .receive(from.ip(), datagram, &mut self.buffer, |given| match given {
                Given::Datagram(bytes) => {
                    sink.send(from, bytes);
                }
                Given::Packet(bytes) => {
                    let at = (index, from.ip());
                    let asked =
                        message(bytes, USER, POINT).map(|message| sink.request(at, key, message));
                    outcome = match asked {
                        Some(true) => Ok(()),
                        Some(false) => Err(Discard::Requests),
                        None => Err(Discard::Guest),
                    };
                }
            })?;
        guest.from = from;
        outcome
    }

    /// Processes an IPv4 packet from the network's node.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl Sink) {
        if let Err(reason) = self.packet(now, packet, sink) {
            self.discards.note(reason);
        }
    }

    fn packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl Sink) -> Result<(), Discard> {
        let header = Ipv4Header::decode(packet).map_err(|_| Discard::NotIpv4)?;
        let packet = &packet[..header.total_bytes];
        let to = Ipv4Addr::from(header.destination);
        if to == self.address {
            let reply = echo_reply(packet, &header).ok_or(Discard::Group)?;
            return if sink.deliver(&reply) {
                Ok(())
            } else {
                Err(Discard::NoRoom)
            };
        }
        if to.is_multicast() || to.is_broadcast() {
            return Err(Discard::Group);
        }
        if packet.len() > self.mtu {
            return Err(Discard::Length);
        }
        let key = self.by_address.get(&to).ok_or(Discard::NoUser)?;
        let peer = self.peers.get_mut(key).ok_or(Discard::NoUser)?;
        if !peer.config.passage.lets_out(&header, packet) {
            return Err(Discard::Right);
        }
        if peer.seen.from.is_none() {
            return Err(Discard::Silent);
        }
        if !peer.down.pass(now, packet) {
            self.backlogged.insert(*key);
            return Ok(());
        }
        peer.send(packet, &mut self.buffer, sink)?;
        peer.seen.received_bytes += packet.len() as u64;
        Ok(())
    }

    /// Forwards the packets that a user's rate limit held back, as far as the limit (a token
    /// bucket) lets them pass at `now`. Returns when the next packet may pass; `None` if no packet
    /// waits.
    pub fn release(&mut self, now: Instant, sink: &mut impl Sink) -> Option<Instant> {
        let mut next = None;
        self.backlogged.retain(|key| {
            let Some(peer) = self.peers.get_mut(key) else {
                return false;
            };
            peer.release(now, &mut self.buffer, &mut self.discards, sink);
            for queue in [&mut peer.up, &mut peer.down] {
                self.marked += queue.take_counts(&mut self.discards);
            }
            let due = peer.due(now);
            next = next.into_iter().chain(due).min();
            due.is_some()
        });
        next
    }

    /// Number of packets that were marked with "congestion experienced" because a user's rate limit
    /// held packets of their flow back for too long.
    #[must_use]
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Whether to answer ARP requests for an address: it belongs to the access point or to a user
    /// who has joined.
    #[must_use]
    pub fn answers_for(&self, address: Ipv4Addr) -> bool {
        address == self.address || self.by_address.contains_key(&address)
    }

    /// Sends an answer to a request, in the session of the request; does nothing if the session has
    /// ended.
    pub fn reply(&mut self, index: u32, reply: &Reply, sink: &mut impl Sink) {
        let bytes = packet(POINT, USER, reply);
        let Some(key) = self.by_index.get(&index) else {
            return;
        };
        let done = match self.peers.get_mut(key).filter(|peer| peer.index == index) {
            Some(peer) => peer.send(&bytes, &mut self.buffer, sink),
            None => match self.guests.get_mut(key) {
                Some(guest) => {
                    let to = guest.from;
                    let send = |bytes: &[u8]| {
                        sink.send(to, bytes);
                    };
                    guest.tunnel.send(&bytes, &mut self.buffer, send)
                }
                None => Ok(()),
            },
        };
        if let Err(reason) = done {
            self.discards.note(reason);
        }
    }

    /// Sends a message to a user, if the user has a session.
    pub fn tell(&mut self, key: PublicKey, reply: &Reply, sink: &mut impl Sink) {
        let index = self.peers.get(&key).map(|peer| peer.index);
        if let Some(index) = index {
            self.reply(index, reply, sink);
        }
    }

    /// Runs the timers: sends the handshakes and keep-alives that are due, and removes guests whose
    /// time has expired. The caller calls this several times a second.
    pub fn tick(&mut self, now: Instant, sink: &mut impl Sink) {
        self.limiter.reset_count();
        for peer in self.peers.values_mut() {
            let to = peer.seen.from;
            peer.tunnel.tick(&mut self.buffer, |bytes| {
                if let Some(to) = to {
                    sink.send(to, bytes);
                }
            });
        }
        let over = |guest: &Guest| now.since(guest.since) >= GUEST_TIME;
        let gone: Vec<PublicKey> = self
            .guests
            .iter()
            .filter(|(_, session)| over(session))
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            if let Some(guest) = self.guests.remove(&key) {
                self.by_index.remove(&guest.index);
            }
        }
    }

    /// The counts of discarded datagrams and packets since the last call.
    pub fn take_discards(&mut self) -> impl Iterator<Item = (Discard, u64)> {
        self.discards.take()
    }

    /// Counts a datagram or packet that was discarded before it reached the state machine.
    pub fn note(&mut self, reason: Discard) {
        self.discards.note(reason);
    }

    /// What the access point knows about each joined user's system, by the system's public key.
    pub fn seen(&self) -> impl Iterator<Item = (PublicKey, PeerSeen)> {
        self.peers.iter().map(|(key, peer)| {
            let since = peer.tunnel.since_handshake();
            let handshake_s = since.map(|since| since.as_secs());
            let seen = peer.seen.clone();
            (
                *key,
                PeerSeen {
                    handshake_s,
                    ..seen
                },
            )
        })
    }
}

impl fmt::Debug for AccessPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (users, guests) = (self.peers.len(), self.guests.len());
        write!(f, "AccessPoint of {users} users and {guests} guests")
    }
}

/// Handshakes per second above which senders must first prove their address with a cookie.
const HANDSHAKES_A_SECOND: u64 = 100;
/// Largest number of guests at a time, and how long each may stay.
const GUESTS_MAX: usize = 64;
/// Largest number of guests from one source address, which may be a NAT with several users behind
/// it.
const GUESTS_OF_SOURCE_MAX: usize = 16;
const GUEST_TIME: Duration = Duration::from_secs(15);
/// Longest time between two datagrams to a user, s; their absence tells the user that the access
/// point has ended.
pub(crate) const KEEPALIVE_S: u16 = 5;

#[cfg(test)]
mod tests;
