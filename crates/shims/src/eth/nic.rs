//! The interface under an Ethernet shim: frames of one VLAN in, frames out, up and down.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carina_engine::Packet;
use carina_netdev::{
    Fault, FaultPlan, Filter, Interface, InterfaceWatch, Layout, NetdevError, PacketSocket,
    VlanMatch,
};
use carina_ring::{Lease, RingMap};
use carina_wire::Payload;
use carina_wire::ether::{
    ETHERTYPE_RINA, HEADER_BYTES_MAX, Header, Mac, TPID_CUSTOMER, Tag, VLAN_MAX,
};

use super::config::EthConfig;
use crate::error::ShimError;

/// An open interface.
pub(super) struct Nic {
    config: EthConfig,
    interface: Interface,
    socket: PacketSocket,
    /// The receive ring once more, for packets that stay in it until the end of the breath.
    ring: Arc<RingMap>,
    watch: InterfaceWatch,
    /// When to ask the watch again, in ns.
    look_at: u64,
    fault: Option<Fault<Vec<u8>>>,
    /// Header of the frames to the station that was written to last.
    header: ([u8; HEADER_BYTES_MAX], usize),
    header_to: Option<(Mac, u16)>,
    has_committed: bool,
    has_received: bool,
    /// The kernel did not take everything: when to try again, in ns.
    retry_at: Option<u64>,
}

/// A frame that came in.
pub(super) struct Arrival {
    pub from: Mac,
    pub to: Mac,
    pub ethertype: u16,
    /// The payload, with the padding of a short frame; lies in the ring until
    /// [`Nic::release_burst`].
    pub payload: Packet,
    /// The frame was longer than a place in the ring.
    pub is_cut: bool,
}

/// How a frame left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is in the ring, or on the impaired line.
    Yes,
    /// It was lost on purpose.
    Impaired,
    /// There is no place for it.
    NoRoom,
}

impl Nic {
    /// Opens the interface of the configuration.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn open(config: EthConfig) -> Result<Nic, ShimError> {
        let vlan = match config.vlan {
            0 => VlanMatch::Untagged,
            id @ 1..=VLAN_MAX => VlanMatch::Id(id),
            id => {
                return Err(ShimError::Vlan { id, max: VLAN_MAX });
            }
        };
        if let Some(plan) = &config.fault {
            plan.check()?;
        }
        let arp = config.dialect.ethertype;
        let filter = Filter::ethernet(vlan, &[ETHERTYPE_RINA], &[arp], ETHERTYPE_RINA);
        let open = || -> Result<_, NetdevError> {
            let interface = Interface::named(&config.interface)?;
            let layout = Layout::for_mtu(interface.mtu);
            let socket = PacketSocket::open(&interface, layout, Some(&filter))?;
            Ok((interface, socket, InterfaceWatch::new()?))
        };
        let (interface, socket, watch) = open()?;
        if interface.mtu < MTU_MIN {
            return Err(ShimError::Mtu {
                interface: interface.name,
                mtu: interface.mtu,
                min: MTU_MIN,
            });
        }
        // A card that filters VLANs would pass none but those the kernel knows of. Where that is
        // refused the interface may still pass them.
        if config.vlan != 0 {
            let _ = socket.be_promiscuous(&interface);
        }
        let what = format!("memory of the ring of {}", interface.name);
        let map = |error| ShimError::system(what.as_str())(error);
        let again = socket.map_again().map_err(map)?;
        let ring = RingMap::foreign(again, socket.rx_bytes()).map_err(map)?;
        let plan = config.fault.filter(|plan| !plan.is_harmless());
        Ok(Nic {
            config,
            interface,
            socket,
            ring: Arc::new(ring),
            watch,
            look_at: 0,
            fault: plan.map(Fault::new),
            header: ([0; HEADER_BYTES_MAX], 0),
            header_to: None,
            has_committed: false,
            has_received: false,
            retry_at: None,
        })
    }

    /// What people call it: the interface, and the VLAN if there is one.
    pub fn label(&self) -> String {
        match self.config.vlan {
            0 => self.interface.name.clone(),
            vlan => format!("{}.{vlan}", self.interface.name),
        }
    }

    pub fn mac(&self) -> Mac {
        Mac(self.interface.mac)
    }

    pub fn config(&self) -> &EthConfig {
        &self.config
    }

    /// Longest SDU: what a frame carries. The tag does not count, for interfaces that take tagged
    /// frames take them 4 bytes longer; where one does not, `mtu` of the configuration says so.
    pub fn sdu_bytes_max(&self) -> usize {
        let fits = self.socket.frame_bytes_max() - HEADER_BYTES_MAX;
        let wanted = self.config.mtu.unwrap_or(usize::MAX);
        self.interface.mtu.min(fits).min(wanted)
    }

    /// Whether frames can be sent.
    ///
    /// # Errors
    /// Why not.
    pub fn link(&self) -> Result<(), ShimError> {
        match self.interface.is_up {
            true => Ok(()),
            false => Err(ShimError::Down(self.interface.name.clone())),
        }
    }

    /// Looks whether the interface has changed, at most once in [`LOOK_NS`]; true when it was
    /// looked at anew.
    ///
    /// # Errors
    /// Why frames cannot be sent any more.
    pub fn look(&mut self, now: u64) -> Result<bool, ShimError> {
        if now < self.look_at {
            return Ok(false);
        }
        self.look_at = now + LOOK_NS;
        if !self.watch.has_changed() {
            return Ok(false);
        }
        self.look_now().map(|()| true)
    }

    /// Something woke the shim: perhaps the watch.
    pub fn look_soon(&mut self) {
        self.look_at = 0;
    }

    /// Looks at the interface.
    ///
    /// # Errors
    /// Why frames cannot be sent any more.
    pub fn look_now(&mut self) -> Result<(), ShimError> {
        let found = match Interface::named(&self.config.interface) {
            Ok(found) => found,
            Err(error) => {
                self.interface.is_up = false;
                return Err(error.into());
            }
        };
        if found.index != self.interface.index {
            // Made anew under the same name.
            if let Err(error) = self.socket.bind(&found) {
                self.interface.is_up = false;
                return Err(error.into());
            }
            if self.config.vlan != 0 {
                let _ = self.socket.be_promiscuous(&found);
            }
        }
        self.header_to = None;
        self.interface = found;
        self.link()
    }

    /// The next frame.
    pub fn next(&mut self) -> Option<Arrival> {
        let received = self.socket.receive()?;
        self.has_received = true;
        // The filter has passed no frame shorter than a header.
        let (header, bytes) = Header::decode(received.frame, &[]).ok()?;
        let (at, len) = (received.at + bytes, received.frame.len() - bytes);
        let is_cut = received.is_cut;
        let lease = Lease::over(&self.ring, at, len);
        Some(Arrival {
            from: header.src,
            to: header.dst,
            ethertype: header.ethertype,
            payload: Packet::from_lease(lease, false),
            is_cut,
        })
    }

    /// Whether a frame waits to be read.
    pub fn has_frame(&self) -> bool {
        self.socket.has_frame()
    }

    /// Frames that can be sent in this breath.
    pub fn room(&mut self) -> usize {
        match &self.fault {
            // The line has a bound of its own, and what exceeds it is to be lost.
            Some(_) => usize::MAX,
            None => self.socket.free_frames(),
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
    pub fn send(&mut self, now: u64, to: Mac, sdu: &Packet) -> Sent {
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
            return match fault.offer(now, frame, bytes) {
                true => Sent::Yes,
                false => Sent::Impaired,
            };
        }
        let Some(place) = self.socket.reserve(bytes) else {
            return Sent::NoRoom;
        };
        place[..head].copy_from_slice(&self.header.0[..head]);
        let copied = Payload::copy_prefix(sdu, &mut place[head..]);
        place[head + copied..].fill(0);
        self.socket.commit(bytes);
        self.has_committed = true;
        Sent::Yes
    }

    /// Sends ARP.
    pub fn send_arp(&mut self, now: u64, to: Mac, payload: &[u8]) -> Sent {
        let head = self.head(to, self.config.dialect.ethertype);
        let mut frame = self.header.0[..head].to_vec();
        frame.extend_from_slice(payload);
        let bytes = frame.len();
        if let Some(fault) = &mut self.fault {
            return match fault.offer(now, frame, bytes) {
                true => Sent::Yes,
                false => Sent::Impaired,
            };
        }
        self.put(&frame)
    }

    fn put(&mut self, frame: &[u8]) -> Sent {
        let Some(place) = self.socket.reserve(frame.len()) else {
            return Sent::NoRoom;
        };
        place.copy_from_slice(frame);
        self.socket.commit(frame.len());
        self.has_committed = true;
        Sent::Yes
    }

    /// Moves what has come to the end of the impaired line into the ring; returns how many frames
    /// were lost there for want of room.
    pub fn move_due(&mut self, now: u64) -> u64 {
        let mut lost = 0;
        while let Some(frame) = self.fault.as_mut().and_then(|fault| fault.take_due(now)) {
            lost += u64::from(self.put(&frame) != Sent::Yes);
        }
        lost
    }

    /// Hands over what was written and gives back what was read. False when the interface takes
    /// nothing any more.
    pub fn release_burst(&mut self, now: u64) -> bool {
        if std::mem::take(&mut self.has_received) {
            self.socket.release();
        }
        let is_due = self.retry_at.is_some_and(|at| now >= at);
        if !std::mem::take(&mut self.has_committed) && !is_due {
            return true;
        }
        match self.socket.flush() {
            Ok(true) => self.retry_at = None,
            Ok(false) => self.retry_at = Some(now + RETRY_NS),
            Err(_) => {
                self.retry_at = None;
                self.socket.discard();
                return false;
            }
        }
        true
    }

    /// When to look again though no doorbell rings.
    pub fn next_deadline(&self) -> Option<u64> {
        let due = self.fault.as_ref().and_then(Fault::next_due);
        [due, self.retry_at].into_iter().flatten().min()
    }

    /// Frames that the kernel had no place for since the last call.
    pub fn take_missed(&self) -> u64 {
        u64::from(self.socket.take_missed())
    }

    /// What becomes readable when a frame comes, and when an interface changes.
    pub fn wait_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.watch.as_fd()]
    }
}

/// What is asked of the fault layer, if anything.
pub(super) fn offered_order(plan: Option<&FaultPlan>) -> bool {
    plan.is_none_or(|plan| plan.reorder == 0.0 && plan.jitter_ns == 0)
}

/// Shortest tagged frame that is sent, in bytes: network cards pad to 60, but between virtual
/// interfaces frames are not padded, and kernels drop tagged frames with less than two bytes of
/// payload.
const TAGGED_BYTES_MIN: usize = HEADER_BYTES_MAX + 2;

/// Shortest MTU that carries PDUs with their headers and a payload.
const MTU_MIN: usize = 256;

/// Asking the kernel costs as much as a frame: a busy shim does it once in this time, in ns. One
/// that is woken does it at once.
const LOOK_NS: u64 = 200_000;

/// Time after which frames that the kernel did not take are offered again, in ns.
const RETRY_NS: u64 = 50_000;
