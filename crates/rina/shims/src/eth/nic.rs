//! The medium of an Ethernet shim with Ethernet headers and the fault layer. It sends and receives
//! frames of one VLAN, and checks whether the link is up.

use std::os::fd::BorrowedFd;

use carina_engine::{Links, Packet, Pool};
use carina_netdev::{Fault, FaultPlan};
use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::ether::{
    ETHERTYPE_RINA, HEADER_BYTES_MAX, Header, Mac, TPID_CUSTOMER, Tag, VLAN_MAX,
};

use super::config::EthConfig;
use super::medium::Medium;
use super::port::PortPlan;
use super::received::Received;
use super::socket::Socket;
use crate::error::ShimError;

/// A checked configuration, with an interface that is open, or a port that the data-plane thread
/// still has to create.
pub(super) struct Opening {
    config: EthConfig,
    medium: OpeningMedium,
}

enum OpeningMedium {
    Socket(Box<Socket>),
    Port(Box<PortPlan>),
}

impl Opening {
    /// Opens the configured interface, or checks what its port needs.
    ///
    /// # Errors
    /// What is wrong with the configuration or the interface.
    pub(super) fn new(config: EthConfig) -> Result<Opening, ShimError> {
        if config.vlan > VLAN_MAX {
            let (id, max) = (config.vlan, VLAN_MAX);
            return Err(ShimError::Vlan { id, max });
        }
        if let Some(plan) = &config.fault {
            plan.check()?;
        }
        let medium = match &config.port {
            None => OpeningMedium::Socket(Box::new(Socket::open(&config)?)),
            Some(port) => OpeningMedium::Port(Box::new(PortPlan::new(&config, port)?)),
        };
        let opening = Opening { config, medium };
        let mtu = opening.mtu();
        if mtu < MTU_MIN {
            return Err(ShimError::Mtu {
                interface: opening.config.name().to_owned(),
                mtu,
                min: MTU_MIN,
            });
        }
        Ok(opening)
    }

    /// Name of the medium in messages.
    pub(super) fn label(&self) -> String {
        self.config.label()
    }

    pub(super) fn config(&self) -> &EthConfig {
        &self.config
    }

    fn mtu(&self) -> usize {
        match &self.medium {
            OpeningMedium::Socket(socket) => socket.mtu(),
            OpeningMedium::Port(plan) => plan.mtu(),
        }
    }

    /// Longest SDU in bytes.
    pub(super) fn sdu_bytes_max(&self) -> usize {
        self.mtu().min(self.config.mtu.unwrap_or(usize::MAX))
    }

    /// Creates the port, if the medium is one. Call it on the thread that runs the shim.
    ///
    /// # Errors
    /// The reason why the port cannot be created.
    pub(super) fn open(self, packets: &Pool) -> Result<Nic, ShimError> {
        let medium = match self.medium {
            OpeningMedium::Socket(socket) => Medium::Socket(socket),
            OpeningMedium::Port(plan) => Medium::Port(Box::new(plan.open(packets.clone())?)),
        };
        Ok(Nic::new(self.config, medium))
    }
}

/// An open medium of an Ethernet shim.
pub(super) struct Nic {
    config: EthConfig,
    medium: Medium,
    /// Earliest time for the next check of the interface.
    look_at: Instant,
    fault: Option<Fault<Vec<u8>>>,
    /// Header of the last frame, as a cache for the next frame to the same station.
    header: ([u8; HEADER_BYTES_MAX], usize),
    header_to: Option<(Mac, u16)>,
    has_committed: bool,
    /// When to offer frames again that the kernel did not take.
    retry_at: Option<Instant>,
}

/// What happened to a frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The frame is in the ring, or in the fault layer's queue.
    Yes,
    /// The fault layer dropped it.
    Impaired,
    /// There was no room for it.
    NoRoom,
}

impl Nic {
    fn new(config: EthConfig, medium: Medium) -> Nic {
        let plan = config.fault.filter(|plan| !plan.is_harmless());
        Nic {
            config,
            medium,
            look_at: Instant::ZERO,
            fault: plan.map(Fault::new),
            header: ([0; HEADER_BYTES_MAX], 0),
            header_to: None,
            has_committed: false,
            retry_at: None,
        }
    }

    /// Name of the medium in messages.
    pub(super) fn label(&self) -> String {
        self.config.label()
    }

    pub(super) fn mac(&self) -> Mac {
        self.medium.mac()
    }

    pub(super) fn config(&self) -> &EthConfig {
        &self.config
    }

    /// Longest SDU in bytes: the longest payload of a frame.
    pub(super) fn sdu_bytes_max(&self) -> usize {
        self.medium.mtu().min(self.config.mtu.unwrap_or(usize::MAX))
    }

    /// Whether frames could be sent when the interface was last checked.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn link(&self) -> Result<(), ShimError> {
        self.medium.link()
    }

    /// Checks whether the interface has changed, at most once in [`LOOK_AFTER`]. Returns whether it
    /// was checked.
    ///
    /// # Errors
    /// The reason why frames can no longer be sent.
    pub(super) fn check_interface(&mut self, now: Instant) -> Result<bool, ShimError> {
        if now < self.look_at {
            return Ok(false);
        }
        self.look_at = now + LOOK_AFTER;
        if !self.medium.has_changed() {
            return Ok(false);
        }
        self.check_now().map(|()| true)
    }

    /// Makes the next [`Nic::check_interface`] check the interface, because a change may have woken
    /// the shim.
    pub(super) fn check_soon(&mut self) {
        self.look_at = Instant::ZERO;
    }

    /// Checks the interface now.
    ///
    /// # Errors
    /// The reason why frames can no longer be sent.
    pub(super) fn check_now(&mut self) -> Result<(), ShimError> {
        self.header_to = None;
        self.medium.check_interface()
    }

    /// Moves frames between the shim and the graph of its port. Returns whether any moved.
    pub(super) fn breathe(&mut self, now: Instant, links: &mut Links) -> bool {
        self.medium.breathe(now, links)
    }

    /// The next received frame. Its payload may lie in the ring until [`Nic::release_burst`].
    pub(super) fn next(&mut self) -> Option<Received> {
        self.medium.receive()
    }

    /// Whether a received frame waits.
    pub(super) fn has_frame(&self) -> bool {
        self.medium.has_frame()
    }

    /// Number of frames that can be sent in this breath.
    pub(super) fn room(&mut self) -> usize {
        match &self.fault {
            // The fault layer has its own limit, and is meant to lose what exceeds it.
            Some(_) => usize::MAX,
            None => self.medium.free_frames(),
        }
    }

    fn head(&mut self, to: Mac, ethertype: u16) -> usize {
        if self.header_to != Some((to, ethertype)) {
            let header = Header {
                dst: to,
                src: self.mac(),
                tag: Tag::of_vlan(TPID_CUSTOMER, self.config.vlan),
                ethertype,
            };
            self.header.1 = header.encode(&mut self.header.0);
            self.header_to = Some((to, ethertype));
        }
        self.header.1
    }

    /// Sends an SDU to a station.
    pub(super) fn send(&mut self, now: Instant, to: Mac, sdu: &Packet) -> Sent {
        let head = self.head(to, ETHERTYPE_RINA);
        let bytes = (head + sdu.len()).max(match self.config.vlan {
            0 => 0,
            _ => TAGGED_BYTES_MIN,
        });
        if let Some(fault) = &mut self.fault {
            let mut frame = Vec::with_capacity(bytes);
            frame.extend_from_slice(&self.header.0[..head]);
            sdu.append_to(&mut frame);
            frame.resize(bytes, 0);
            return if fault.offer(now.as_nanos(), frame, bytes) {
                Sent::Yes
            } else {
                Sent::Impaired
            };
        }
        let Some(place) = self.medium.reserve(bytes) else {
            return Sent::NoRoom;
        };
        place[..head].copy_from_slice(&self.header.0[..head]);
        let copied = Payload::copy_prefix(sdu, &mut place[head..]);
        place[head + copied..].fill(0);
        self.medium.commit(bytes);
        self.has_committed = true;
        Sent::Yes
    }

    /// Sends an ARP message.
    pub(super) fn send_arp(&mut self, now: Instant, to: Mac, payload: &[u8]) -> Sent {
        let head = self.head(to, self.config.dialect.ethertype);
        let mut frame = self.header.0[..head].to_vec();
        frame.extend_from_slice(payload);
        let bytes = frame.len();
        if let Some(fault) = &mut self.fault {
            return if fault.offer(now.as_nanos(), frame, bytes) {
                Sent::Yes
            } else {
                Sent::Impaired
            };
        }
        self.put(&frame)
    }

    fn put(&mut self, frame: &[u8]) -> Sent {
        let Some(place) = self.medium.reserve(frame.len()) else {
            return Sent::NoRoom;
        };
        place.copy_from_slice(frame);
        self.medium.commit(frame.len());
        self.has_committed = true;
        Sent::Yes
    }

    /// Moves the frames whose delay in the fault layer has passed into the ring. Returns how many
    /// were lost because the ring was full.
    pub(super) fn move_due(&mut self, now: Instant) -> u64 {
        let mut lost = 0;
        while let Some(frame) = self
            .fault
            .as_mut()
            .and_then(|fault| fault.take_due(now.as_nanos()))
        {
            lost += u64::from(self.put(&frame) != Sent::Yes);
        }
        lost
    }

    /// Hands written frames to the medium and releases received ones. Returns false when the medium
    /// is down.
    pub(super) fn release_burst(&mut self, now: Instant, links: &mut Links) -> bool {
        self.medium.release();
        let is_due = self.retry_at.is_some_and(|at| now >= at);
        if !std::mem::take(&mut self.has_committed) && !is_due {
            return true;
        }
        let flushed = self.medium.flush(now, links);
        self.retry_at = (flushed == Some(false)).then_some(now + RETRY_AFTER);
        flushed.is_some()
    }

    /// Arms the wake-up. Returns false when there is something to do already.
    pub(super) fn arm(&mut self, now: Instant, links: &mut Links) -> bool {
        self.medium.arm(now, links)
    }

    /// Cancels the wake-up that [`Nic::arm`] has armed.
    pub(super) fn disarm(&mut self) {
        self.medium.disarm();
    }

    /// When to run again even if no doorbell rings.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let due = self.fault.as_ref().and_then(Fault::next_due);
        let due = due.map(Instant::from_nanos);
        let medium = self.medium.next_deadline();
        [due, self.retry_at, medium].into_iter().flatten().min()
    }

    /// Frames lost since the last call because there was no room for them.
    pub(super) fn take_missed(&mut self) -> u64 {
        self.medium.take_missed()
    }

    /// Descriptors that become readable when a frame arrives or an interface changes.
    pub(super) fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.medium.wait_fds()
    }
}

/// Whether flows keep the order of SDUs: the fault layer does not reorder frames or vary their
/// delay.
pub(super) fn offered_order(plan: Option<&FaultPlan>) -> bool {
    plan.is_none_or(|plan| plan.reorder == 0.0 && plan.jitter_ns == 0)
}

/// Shortest tagged frame that is sent, in bytes. Network cards pad frames to 60 bytes. Virtual
/// interfaces do not, and kernels drop tagged frames with less than two bytes of payload.
const TAGGED_BYTES_MIN: usize = HEADER_BYTES_MAX + 2;

/// Smallest MTU that leaves room for the headers of a PDU and a payload.
const MTU_MIN: usize = 256;

/// Shortest time between two checks of the interface, because a check costs as much as a
/// frame. A shim that was woken checks at once.
const LOOK_AFTER: Duration = Duration::from_micros(200);

/// How long to wait before frames that the kernel did not take are offered again.
const RETRY_AFTER: Duration = Duration::from_micros(50);
