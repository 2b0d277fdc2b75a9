//! **wireguard_user**: the user's end of a tunnel to an access point, connected to a
//! [`tun`](carina_ports::tun).
//!
//! - inputs: `input`: frames from this system
//! - outputs: `output`: frames to this system
//! - configuration: `key`: private key of this end; `point`: address of the access point;
//!   `point_key`: its public key; `address`: address of the user; `watch`: receives messages of the
//!   access point
//! - counters: `drop_not_ours`: packets from or to other addresses than the user's;
//!   `drop_stranger`: datagrams that do not come from the access point; `drop_no_frame`;
//!   `drop_no_room`: the system accepted no more datagrams
//! - cost: one copy, and encryption or decryption, in each direction

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports};
use carina_netdev::DatagramSocket;
use carina_sys::Interest;
use carina_time::Duration;
use carina_wire::inet::ETHERTYPE_IPV4;

use crate::control::{Reply, Request};
use crate::key::{PrivateKey, PublicKey};
use crate::tunnel::DATAGRAM_MAX;
use crate::user_end::{UserEnd, UserSink};

/// What the app for the user's end of a tunnel needs to start: keys and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserConfig {
    /// Private key of the user's end of the tunnel.
    pub key: PrivateKey,
    /// IP address and UDP port of the access point, outside the tunnel.
    pub point: SocketAddr,
    /// Public key of the access point.
    pub point_key: PublicKey,
    /// IPv4 address of the user inside the network.
    pub address: Ipv4Addr,
    /// State of the user's end, through which another thread receives messages of the access point.
    pub watch: Watch,
}

/// Shares the state of the user's end with another thread. Clones refer to the same state.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    /// Number of datagrams received from the access point.
    heard: AtomicU64,
    news: Mutex<Option<Reply>>,
    asks: Mutex<Option<Request>>,
}

impl Watch {
    /// Number of datagrams received from the access point.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.0.heard.load(Ordering::Relaxed)
    }

    /// Takes the last message of the access point; `None` if there is no new one.
    #[must_use]
    pub fn take_news(&self) -> Option<Reply> {
        let mut news = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.take()
    }
}

impl Watch {
    /// Makes the user's end send a request to the access point, in the tunnel. The answer comes by
    /// [`Watch::take_news`].
    pub fn ask(&self, request: Request) {
        let mut asks = self.0.asks.lock().unwrap_or_else(PoisonError::into_inner);
        *asks = Some(request);
    }

    fn take_ask(&self) -> Option<Request> {
        let mut asks = self.0.asks.lock().unwrap_or_else(PoisonError::into_inner);
        asks.take()
    }
}

impl PartialEq for Watch {
    fn eq(&self, other: &Watch) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Watch {}

/// The app that is the user's end of a tunnel, as it runs in the engine.
pub struct UserApp {
    end: UserEnd,
    socket: DatagramSocket,
    point: SocketAddr,
    watch: Watch,
    pool: Pool,
    frames: Vec<Frame>,
    copy: Vec<u8>,
    lost: usize,
    no_frame: usize,
    has_begun: bool,
    not_ours: Counter,
    stranger: Counter,
    drop_no_frame: Counter,
    no_room: Counter,
}

impl AppConfig for UserConfig {
    const KIND: &'static str = "wireguard_user";
    const INPUTS: PortList = PortList::Named(&[Port::new("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::new("output")]);
    const TICK: Option<Duration> = Some(Duration::from_millis(100));

    type App = UserApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<UserApp, AppError> {
        let any = any_address(self.point);
        Ok(UserApp {
            end: UserEnd::new(&self.key, self.point_key, self.point, Some(self.address)),
            socket: DatagramSocket::bind(any, DATAGRAM_MAX)?,
            point: self.point,
            watch: self.watch.clone(),
            pool: context.pool().clone(),
            frames: Vec::new(),
            copy: Vec::with_capacity(DATAGRAM_MAX),
            lost: 0,
            no_frame: 0,
            has_begun: false,
            not_ours: context.counter("drop_not_ours"),
            stranger: context.counter("drop_stranger"),
            drop_no_frame: context.counter("drop_no_frame"),
            no_room: context.counter("drop_no_room"),
        })
    }
}

/// The unspecified address and port of the same family as `other`.
#[must_use]
pub fn any_address(other: SocketAddr) -> SocketAddr {
    match other {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
    }
}

/// Sends and delivers what the state machine returns.
struct Exit<'a> {
    socket: &'a mut DatagramSocket,
    point: SocketAddr,
    watch: &'a Watch,
    pool: &'a Pool,
    frames: &'a mut Vec<Frame>,
    lost: &'a mut usize,
    no_frame: &'a mut usize,
}

impl UserSink for Exit<'_> {
    fn send(&mut self, datagram: &[u8]) {
        if self.socket.room() == 0 {
            *self.lost += self.socket.flush().0;
        }
        match self.socket.queue(self.point, datagram.len()) {
            Some(place) => place.copy_from_slice(datagram),
            None => *self.lost += 1,
        }
    }

    fn deliver(&mut self, packet: &[u8]) {
        let frame = self.pool.frame_of(packet).and_then(|mut frame| {
            // The tun removes the Ethernet header again.
            let mut header = [0; ETHER];
            header[12..].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
            frame.prepend(&header).then_some(frame)
        });
        match frame {
            Some(frame) => self.frames.push(frame),
            None => *self.no_frame += 1,
        }
    }

    fn hear(&mut self, reply: Reply) {
        let news = self.watch.0.news.lock();
        *news.unwrap_or_else(PoisonError::into_inner) = Some(reply);
    }
}

impl FrameApp for UserApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let mut copy = std::mem::take(&mut self.copy);
        let (mut heard, mut strangers) = (0, 0);
        for at in 0..self.socket.receive() {
            let Some((bytes, from)) = self.socket.datagram(at) else {
                strangers += 1;
                continue;
            };
            copy.clear();
            copy.extend_from_slice(bytes);
            let (end, mut exit) = self.parts();
            if end.handle_datagram(from, &copy, &mut exit) {
                heard += 1
            } else {
                strangers += 1
            }
        }
        self.copy = copy;
        self.stranger.add(strangers);
        self.watch.0.heard.fetch_add(heard, Ordering::Relaxed);
        self.leave(ports);
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let mut not_ours = 0;
        while let Some(frame) = ports.receive(0) {
            let packet = frame.bytes().get(ETHER..).unwrap_or_default();
            let (end, mut exit) = self.parts();
            not_ours += u64::from(!end.handle_packet(packet, &mut exit));
        }
        self.not_ours.add(not_ours);
        self.leave(ports);
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let ask = self.watch.take_ask();
        let (end, mut exit) = self.parts();
        if !has_begun {
            end.begin(&mut exit);
        }
        if let Some(request) = ask {
            end.ask(&request, &mut exit);
        }
        end.tick(&mut exit);
        self.leave(ports);
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Read))
    }
}

impl UserApp {
    fn parts(&mut self) -> (&mut UserEnd, Exit<'_>) {
        let exit = Exit {
            socket: &mut self.socket,
            point: self.point,
            watch: &self.watch,
            pool: &self.pool,
            frames: &mut self.frames,
            lost: &mut self.lost,
            no_frame: &mut self.no_frame,
        };
        (&mut self.end, exit)
    }

    fn leave(&mut self, ports: &mut Ports<'_>) {
        for frame in self.frames.drain(..) {
            ports.transmit(0, frame);
        }
        let lost = std::mem::take(&mut self.lost) + self.socket.flush().0;
        self.no_room.add(lost as u64);
        self.drop_no_frame
            .add(std::mem::take(&mut self.no_frame) as u64);
    }
}

const ETHER: usize = 14;
