//! **wireguard_access**: an app that lets end users into a network over WireGuard, at the link of a
//! node.
//!
//! - inputs: `input`: frames from the node
//! - outputs: `output`: frames to the node
//! - configuration: `key`: private key of the tunnels; `listen`: address and UDP port to listen on;
//!   `netns`: file of the network namespace in which to listen (default: the graph's); `address`:
//!   the access point's IPv4 address on the link; `mac`: its MAC address; `node_mac`: the node's
//!   MAC address; `mtu`: bytes of the largest packet; `mailbox`: receives users' requests, and
//!   provides orders
//! - counters: `users`: number of users who have joined; `marked_ce`: packets that were marked
//!   because packets of their flow waited too long for a user's rate; `drop_…`: one for each reason
//!   of [`Discard`]
//! - cost: one copy, and encryption or decryption, in each direction; a system call per burst of
//!   datagrams; another copy of each packet that waits for its user's rate
//!
//! The app answers ARP requests for its own address and for those of joined users, and echo
//! requests to its own address. Orders take effect within 50 ms.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use carina_apps::mac_text::MacText;
use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Port, PortList, Ports, made,
};
use carina_netdev::DatagramSocket;
use carina_sys::{Interest, NetworkNamespace};
use carina_time::{Duration, Instant};
use carina_vnet::host_part::{ACCESS_MTU_MAX, MTU_MIN};
use carina_wire::ether::{ETHERTYPE_ARP, Mac};
use carina_wire::inet::{ARP4_BYTES, Arp4, ETHERTYPE_IPV4};

use crate::access_point::{AccessPoint, Sink};
use crate::control::Request;
use crate::discard::Discard;
use crate::key::{PrivateKey, PublicKey};
use crate::mailbox::{AccessMailbox, Asked};
use crate::tunnel::DATAGRAM_MAX;

/// What an access point's app needs to start: keys, addresses, and the mailbox for decisions about
/// users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessConfig {
    /// The access point's private key, for its tunnels to all users.
    pub key: PrivateKey,
    /// Address and UDP port to listen on.
    pub listen: SocketAddr,
    /// File of the network namespace in which to listen; `None`: the namespace in which the graph
    /// runs.
    pub netns: Option<PathBuf>,
    /// IPv4 address of the access point on the link.
    pub address: Ipv4Addr,
    /// MAC address of the access point on the link to its node.
    pub mac: MacText,
    /// MAC address of the node on that link.
    pub node_mac: MacText,
    /// Length of the largest IP packet that the link carries, in bytes.
    pub mtu: u16,
    /// The mailbox that receives requests and provides orders.
    pub mailbox: AccessMailbox,
}

/// The app that lets end users into a network, as it runs in the engine.
pub struct AccessApp {
    point: AccessPoint,
    socket: DatagramSocket,
    mailbox: AccessMailbox,
    pool: Pool,
    mac: [u8; 6],
    /// Ethernet header of frames to the node.
    header: [u8; ETHER],
    users: Counter,
    dropped: Vec<Counter>,
    frames: Vec<Frame>,
    /// A buffer for one datagram.
    copy: Vec<u8>,
    /// Number of datagrams that the system refused to send.
    lost: usize,
    /// When a packet that waits for a user's rate may pass next; `None` if no packet waits.
    due: Option<Instant>,
    marked: Counter,
}

/// Why the app cannot be created.
#[derive(Debug, thiserror::Error)]
enum AccessError {
    #[error("netns = {}: {source}", path.display())]
    Namespace {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "mtu = {0}: must be {MTU_MIN} to {ACCESS_MTU_MAX}, the most that a tunnel to a user carries"
    )]
    Mtu(u16),
    #[error("address {0:?}: must be the Ethernet address of one station")]
    Group(MacText),
}

impl AppConfig for AccessConfig {
    const KIND: &'static str = "wireguard_access";
    const INPUTS: PortList = PortList::Named(&[Port::new("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::new("output")]);
    const TICK: Option<Duration> = Some(Duration::from_millis(50));
    const OPENS: bool = true;

    type App = AccessApp;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<AccessApp, AppError> {
        if !(MTU_MIN..=ACCESS_MTU_MAX).contains(&self.mtu) {
            return Err(AccessError::Mtu(self.mtu).into());
        }
        for mac in [self.mac, self.node_mac] {
            if mac.0.is_group() {
                return Err(AccessError::Group(mac).into());
            }
        }
        let mut header = [0; ETHER];
        header[..6].copy_from_slice(&self.node_mac.0.0);
        header[6..12].copy_from_slice(&self.mac.0.0);
        header[12..].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        let mut point = AccessPoint::new(&self.key, self.address, self.mtu);
        let peers = self.mailbox.peers();
        point.set_peers(&peers);
        let users = context.counter("users");
        users.set(peers.len() as u64);
        let names = Discard::ALL.iter();
        Ok(AccessApp {
            point,
            socket: self.bind()?,
            mailbox: self.mailbox.clone(),
            pool: context.pool().clone(),
            mac: self.mac.0.0,
            header,
            users,
            dropped: names.map(|name| context.counter(name.name())).collect(),
            frames: Vec::new(),
            copy: Vec::with_capacity(DATAGRAM_MAX),
            lost: 0,
            due: None,
            marked: context.counter("marked_ce"),
        })
    }
}

impl AccessConfig {
    fn bind(&self) -> Result<DatagramSocket, AppError> {
        let bind = || DatagramSocket::bind(self.listen, DATAGRAM_MAX);
        let Some(path) = &self.netns else {
            return Ok(bind()?);
        };
        let bound = NetworkNamespace::open(path).and_then(|open| open.within(bind));
        let bound = bound.map_err(|source| AccessError::Namespace {
            path: path.clone(),
            source,
        });
        Ok(bound??)
    }
}

/// Sends and delivers what the state machine returns.
struct Exit<'a> {
    socket: &'a mut DatagramSocket,
    mailbox: &'a AccessMailbox,
    pool: &'a Pool,
    header: &'a [u8; ETHER],
    frames: &'a mut Vec<Frame>,
    lost: &'a mut usize,
}

impl Sink for Exit<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        if self.socket.room() == 0 {
            *self.lost += self.socket.flush().0;
        }
        match self.socket.queue(to, datagram.len()) {
            Some(place) => {
                place.copy_from_slice(datagram);
                true
            }
            None => false,
        }
    }

    fn deliver(&mut self, packet: &[u8]) -> bool {
        let Some(mut frame) = self.pool.frame_of(packet) else {
            return false;
        };
        let is_prepended = frame.prepend(self.header);
        if is_prepended {
            self.frames.push(frame);
        }
        is_prepended
    }

    fn request(&mut self, (index, from): (u32, IpAddr), key: PublicKey, request: Request) -> bool {
        self.mailbox.ask(Asked {
            index,
            from,
            key,
            request,
        })
    }
}

impl FrameApp for AccessApp {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let count = self.socket.receive();
        let now = ports.now();
        if count == 0 && self.due.is_none_or(|due| due > now) {
            return;
        }
        // Answers are queued at the socket that still holds the received burst; therefore each
        // datagram is copied out of the burst first.
        let mut copy = std::mem::take(&mut self.copy);
        for at in 0..count {
            let Some((bytes, from)) = self.socket.datagram(at) else {
                self.point.note(Discard::NotWireguard);
                continue;
            };
            copy.clear();
            copy.extend_from_slice(bytes);
            let (point, mut exit) = self.parts();
            point.handle_datagram(now, from, &copy, &mut exit);
        }
        self.copy = copy;
        self.leave(ports);
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        while let Some(frame) = ports.receive(0) {
            let bytes = frame.bytes();
            let kind = bytes
                .get(12..14)
                .map(|byte| u16::from_be_bytes([byte[0], byte[1]]));
            let inside = bytes.get(ETHER..).unwrap_or_default();
            match kind {
                Some(ETHERTYPE_IPV4) => {
                    let (point, mut exit) = self.parts();
                    point.handle_packet(now, inside, &mut exit);
                }
                Some(ETHERTYPE_ARP) => self.on_arp(inside),
                _ => self.point.note(Discard::NotIpv4),
            }
        }
        self.leave(ports);
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        let orders = self.mailbox.take_orders();
        let now = ports.now();
        let (point, mut exit) = self.parts();
        for (index, reply) in &orders.answers.replies {
            point.reply(*index, reply, &mut exit);
        }
        for (key, reply) in &orders.answers.news {
            point.tell(*key, reply, &mut exit);
        }
        point.tick(now, &mut exit);
        self.leave(ports);
        if let Some(peers) = orders.peers {
            self.point.set_peers(&peers);
            self.users.set(peers.len() as u64);
        }
        self.mailbox.see(self.point.seen());
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Read))
    }
}

impl AccessApp {
    fn parts(&mut self) -> (&mut AccessPoint, Exit<'_>) {
        let exit = Exit {
            socket: &mut self.socket,
            mailbox: &self.mailbox,
            pool: &self.pool,
            header: &self.header,
            frames: &mut self.frames,
            lost: &mut self.lost,
        };
        (&mut self.point, exit)
    }

    /// Answers an ARP request for the address of this app or of a joined user.
    fn on_arp(&mut self, bytes: &[u8]) {
        let Some(arp) = Arp4::decode(bytes).filter(|arp| !arp.is_reply) else {
            return;
        };
        if !self.point.answers_for(Ipv4Addr::from(arp.target.1)) || Mac(arp.sender.0).is_group() {
            return;
        }
        let reply = Arp4 {
            is_reply: true,
            sender: (self.mac, arp.target.1),
            target: arp.sender,
        };
        // The shortest Ethernet frame, without FCS, has 60 bytes. (IEEE 802.3 §4A.4.2)
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&arp.sender.0);
        frame[6..12].copy_from_slice(&self.mac);
        frame[12..ETHER].copy_from_slice(&ETHERTYPE_ARP.to_be_bytes());
        frame[ETHER..ETHER + ARP4_BYTES].copy_from_slice(&reply.encode());
        match self.pool.frame_of(&frame) {
            Some(frame) => self.frames.push(frame),
            None => self.point.note(Discard::NoRoom),
        }
    }

    /// Forwards the packets that waited for a user's rate, transmits the collected frames, and
    /// counts what could not be sent.
    fn leave(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        let (point, mut exit) = self.parts();
        let due = point.release(now, &mut exit);
        self.due = due.map(|due| due.max(now + WAKE_EVERY));
        self.marked.set(self.point.marked());
        for frame in self.frames.drain(..) {
            ports.transmit(0, frame);
        }
        let lost = std::mem::take(&mut self.lost) + self.socket.flush().0;
        for _ in 0..lost {
            self.point.note(Discard::NoRoom);
        }
        for (reason, count) in self.point.take_discards() {
            self.dropped[reason as usize].add(count);
        }
    }
}

const ETHER: usize = 14;
/// Time between two visits for packets that wait: short compared with any round trip, long compared
/// with the cost of a visit.
const WAKE_EVERY: Duration = Duration::from_micros(50);
