//! Two data planes that share a region in a memfd, with applications at both ends.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a harness: each test uses its part, a failure is a failed test"
)]

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_dataplane::{Command, DataPlane, Event, FlowEnd};
use carina_engine::counters::Table;
use carina_random::SplitMix;
use carina_ring::channel::{ChannelMemory, Endpoint, Side as End};
use carina_ring::{State, WakeMode};
use carina_shims::HvBuilder;
use carina_vmpi::hl::Side;
use carina_vmpi::ll::memfd::MemfdRegion;
use carina_vmpi::ll::{VmpiImpl, vsock};

pub(crate) const IPCP: IpcpId = IpcpId(1);
pub(crate) const RING: usize = 1 << 20;

pub(crate) struct Pair {
    pub host: DataPlane,
    pub guest: DataPlane,
    pub region: MemfdRegion,
    pub host_table: Table,
    pub guest_table: Table,
    next_port: u32,
}

/// Time limit that ends a test that hangs. No test result depends on its value.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_NS: u64 = PATIENCE.as_nanos() as u64;

/// Waits for an event for which `wanted` returns `Some`. Panics at the time limit and prints the
/// other events.
pub(crate) fn wait_for<T>(plane: &DataPlane, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    let mut others = Vec::new();
    while Instant::now() < until {
        assert!(plane.is_running(), "the data plane has died");
        match plane.poll_event() {
            Some(event) => match wanted(&event) {
                Some(value) => return value,
                None => others.push(event),
            },
            None => std::thread::sleep(Duration::from_micros(200)),
        }
    }
    panic!("waited in vain, got {others:?}");
}

pub(crate) fn name(text: &str) -> AppName {
    AppName::new(text).unwrap()
}

impl Pair {
    pub(crate) fn up() -> Pair {
        Pair::with_region(16 << 20)
    }

    pub(crate) fn with_region(bytes: usize) -> Pair {
        let region = MemfdRegion::create(bytes).unwrap();
        let devices = [Side::Host, Side::Guest].map(|side| (side, region.device(side).unwrap()));
        Pair::over(region, devices)
    }

    /// Two data planes over a stream: over vsock a VM and its host have such a stream.
    pub(crate) fn over_stream() -> Pair {
        let (host, guest) = UnixStream::pair().unwrap();
        let side = |side, socket: UnixStream| {
            socket.set_nonblocking(true).unwrap();
            (side, vsock::over(side, socket.into()).unwrap())
        };
        let devices = [side(Side::Host, host), side(Side::Guest, guest)];
        Pair::over(MemfdRegion::create(64 << 10).unwrap(), devices)
    }

    fn over(region: MemfdRegion, devices: [(Side, Box<dyn VmpiImpl + Send>); 2]) -> Pair {
        let host_table = Table::private().unwrap();
        let guest_table = Table::private().unwrap();
        let host = DataPlane::spawn(host_table.clone()).unwrap();
        let guest = DataPlane::spawn(guest_table.clone()).unwrap();
        let pair = Pair {
            host,
            guest,
            region,
            host_table,
            guest_table,
            next_port: 0,
        };
        for (side, device) in devices {
            pair.add_device(side, device);
        }
        pair.wait_up();
        pair.guest.send(Command::Register {
            ipcp: IPCP,
            name: name("echo"),
            reader: None,
        });
        wait_for(&pair.host, |event| {
            matches!(event, Event::PeerRegistered { .. }).then_some(())
        });
        pair
    }

    pub(crate) fn add(&mut self, side: Side) {
        self.add_device(side, self.region.device(side).unwrap());
    }

    fn add_device(&self, side: Side, device: Box<dyn VmpiImpl + Send>) {
        let plane = if side == Side::Host {
            &self.host
        } else {
            &self.guest
        };
        let name = format!("{side:?}");
        let builder = HvBuilder {
            label: "a".to_owned(),
            device,
            side,
            name,
        };
        plane.add_ipcp(IPCP, Box::new(builder));
    }

    pub(crate) fn wait_up(&self) {
        for plane in [&self.host, &self.guest] {
            wait_for(plane, |event| {
                matches!(event, Event::LinkUp { .. }).then_some(())
            });
        }
    }

    pub(crate) fn port(&mut self) -> PortId {
        self.next_port += 1;
        PortId(self.next_port)
    }

    /// Opens a flow from the host to `echo` in the guest, with these ends of the data planes.
    pub(crate) fn connect(&mut self, host: FlowEnd, guest: FlowEnd) -> (PortId, PortId) {
        let port = self.port();
        self.host.send(Command::Allocate {
            ipcp: IPCP,
            port,
            local: name("caller"),
            remote: name("echo"),
            spec: FlowSpec::reliable(),
            end: host,
        });
        let guest_port = wait_for(&self.guest, |event| match event {
            Event::IncomingFlow {
                port,
                local,
                remote,
                spec,
                ..
            } => {
                assert_eq!((local.as_str(), remote.as_str()), ("echo", "caller"));
                assert_eq!(*spec, FlowSpec::reliable());
                assert_eq!(port.0 >> 30, 2);
                Some(*port)
            }
            _ => None,
        });
        self.guest.send(Command::Respond {
            port: guest_port,
            answer: Ok(guest),
        });
        wait_for(&self.host, |event| match event {
            Event::AllocateResult { port: p, result } if *p == port => {
                assert_eq!(*result, Ok(()));
                Some(())
            }
            _ => None,
        });
        (port, guest_port)
    }

    /// Opens a flow with rings at both ends. Returns the applications' ends at host and guest.
    pub(crate) fn flow(&mut self) -> (App, App, PortId, PortId) {
        let (host_end, host_app) = ring(RING);
        let (guest_end, guest_app) = ring(RING);
        let (port, guest_port) = self.connect(host_end, guest_end);
        (host_app, guest_app, port, guest_port)
    }
}

pub(crate) fn ring(capacity: usize) -> (FlowEnd, App) {
    let memory = ChannelMemory::create(capacity).unwrap();
    let end = memory.endpoint(End::A, WakeMode::Fence).unwrap();
    let app = App {
        end: memory.endpoint(End::B, WakeMode::Fence).unwrap(),
        memory,
        posted: 0,
    };
    (FlowEnd::Ring(Box::new(end)), app)
}

pub(crate) fn socket() -> (FlowEnd, OwnedFd) {
    let (mine, theirs) = carina_sys::socketpair_seqpacket().unwrap();
    (FlowEnd::Socket(mine), theirs)
}

pub(crate) fn closed_reason(plane: &DataPlane, port: PortId) -> String {
    wait_for(plane, |event| match event {
        Event::FlowClosed { port: p, reason } if *p == port => Some(reason.clone()),
        _ => None,
    })
}

/// A simple application's end of a flow: pieces of a quarter of the ring, doorbells, and sleeps.
pub(crate) struct App {
    pub end: Endpoint,
    pub memory: ChannelMemory,
    pub posted: u64,
}

impl App {
    pub(crate) fn send(&mut self, sdu: &[u8]) {
        let piece_max = self.end.tx.capacity() / 4;
        let mut at = 0;
        loop {
            let piece = &sdu[at..sdu.len().min(at + piece_max)];
            at += piece.len();
            let more = at < sdu.len();
            while self.end.tx.push(&[piece], more).is_err() {
                self.end.publish();
                self.wait_for_room(piece.len());
            }
            if !more {
                break;
            }
        }
        self.end.publish();
    }

    /// Sends without waking the receiver for each SDU. At the latest when the ring is full, the
    /// SDUs become visible.
    pub(crate) fn post(&mut self, sdu: &[u8]) {
        if sdu.len() > self.end.tx.capacity() / 4 {
            return self.send(sdu);
        }
        while self.end.tx.push(&[sdu], false).is_err() {
            self.end.publish();
            self.wait_for_room(self.end.tx.capacity() / 4);
        }
        self.posted += 1;
        if self.posted.is_multiple_of(16) {
            self.end.publish();
        }
    }

    /// Receives into a buffer that is large enough for the SDU. Spins a little before it sleeps.
    pub(crate) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let (mut at, mut turns) = (0, 0);
        loop {
            match self
                .end
                .rx
                .next()
                .expect("the data plane keeps to the rules")
            {
                Some(piece) => {
                    turns = 0;
                    at += piece.copy_to(&mut buffer[at..]);
                    let more = piece.more();
                    self.end.release_lazily();
                    if !more {
                        return at;
                    }
                }
                None if turns < 50 => {
                    turns += 1;
                    std::thread::yield_now();
                }
                None => {
                    if self.end.rx.arm() {
                        let _ = self.end.my_rx_doorbell.wait(Some(1_000_000_000));
                    }
                    self.end.my_rx_doorbell.drain();
                    self.end.rx.disarm();
                }
            }
        }
    }

    fn wait_for_room(&mut self, len: usize) {
        let cost = self.end.tx.record_cost(len);
        if self.end.tx.arm_space(cost).unwrap() {
            let rang = self.end.my_tx_doorbell.wait(Some(PATIENCE_NS)).unwrap();
            assert!(rang, "no room within {PATIENCE:?}");
        }
        self.end.my_tx_doorbell.drain();
        self.end.tx.disarm();
    }

    /// Receives the next SDU; an error is how the stream has ended.
    pub(crate) fn recv(&mut self) -> Result<Vec<u8>, State> {
        let mut sdu = Vec::new();
        loop {
            let state = self.end.rx.state();
            match self
                .end
                .rx
                .next()
                .expect("the data plane keeps to the rules")
            {
                Some(piece) => {
                    sdu.extend_from_slice(&piece.to_vec());
                    let more = piece.more();
                    self.end.release();
                    if !more {
                        return Ok(sdu);
                    }
                }
                None if state != State::Open => return Err(state),
                None => {
                    if self.end.rx.arm() {
                        let rang = self.end.my_rx_doorbell.wait(Some(PATIENCE_NS)).unwrap();
                        assert!(rang, "nothing within {PATIENCE:?}");
                    }
                    self.end.my_rx_doorbell.drain();
                    self.end.rx.disarm();
                }
            }
        }
    }
}

/// Pseudo-random contents of SDUs, determined by the seed.
pub(crate) struct Random(SplitMix);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill(&mut bytes);
        bytes
    }
}
