//! The shim IPC process over Ethernet. Specified in the Pouzin Society's "Shim DIF over 802.1Q
//! Layer", summarized in "Building the Future Internet through FIRE" (2017), section 16.4.1.1; with
//! RINA's use of ARP (RFC 826).
//!
//! Every VLAN (IEEE 802.1Q) is a DIF, and its id is the DIF's name. An SDU is the payload of a
//! frame with Ethertype 0xD1F0, and a flow is a pair of MAC addresses. A RINA ARP request finds the
//! station that has a name, and at the same time requests the flow. There is no message that ends a
//! flow: each side ends it on its own.
//!
//! ```text
//!   initiator                                 responder
//!   ARP request  (who has "b"? I am "a")  -->  notes: this station is "a" and requests "b"
//!   flow is open <--  ARP reply ("b" is here)
//!   first SDU    ------------------------->  IncomingFlow; SDUs wait until it is answered
//! ```

mod arp_cache;
mod config;
mod flows;
mod medium;
mod nic;
mod port;
mod received;
mod socket;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use carina_api::AppName;
use carina_dataplane::{AppContext, BuildError, IpcpBuilder, QosOffered};
use carina_engine::counters::Value;
use carina_engine::{App, BURST, Close, LinkId, Links, Packet};
use carina_frame_engine::tap::Taps;
use carina_sys::Interest;
use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::arp::{Arp, ArpError, Dialect, Name, Operation};
use carina_wire::ether::{ETHERTYPE_RINA, HEADER_BYTES_MAX, Header, Mac, TPID_CUSTOMER, Tag};
use carina_wire::pcapng::Direction;

use self::arp_cache::ArpCache;
pub use self::config::{EthConfig, PortConfig};
use self::flows::FlowByMac;
use self::nic::{Nic, Opening, Sent};
use self::received::Received;
use crate::error::ShimError;
use crate::flow_table::{FlowTable, Names};
use crate::retries::{Due, Retries};

impl EthConfig {
    /// Opens the interface. Returns the builder of the shim's app for the data plane, and the QoS
    /// that the shim's flows offer. If the medium is a port of a graph, the data plane creates it
    /// and reports errors later.
    ///
    /// # Errors
    /// What is wrong with the configuration or the interface.
    pub fn open(self) -> Result<(Box<dyn IpcpBuilder>, QosOffered), ShimError> {
        let opening = Opening::new(self)?;
        let offered = QosOffered {
            in_order: nic::offered_order(opening.config().fault.as_ref()),
            ..QosOffered::datagrams(opening.sdu_bytes_max())
        };
        Ok((Box::new(EthBuilder { opening }), offered))
    }
}

struct EthBuilder {
    opening: Opening,
}

impl IpcpBuilder for EthBuilder {
    fn label(&self) -> String {
        format!("eth {}", self.opening.label())
    }

    fn enforces_credit(&self) -> bool {
        false
    }

    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError> {
        let nic = self.opening.open(&context.pool)?;
        Ok(Box::new(Eth::new(context, nic)))
    }
}

/// The app of an Ethernet shim.
pub(super) struct Eth {
    name: String,
    nic: Nic,
    /// The flows. Each has the MAC address of its station, once that has answered.
    flows: FlowTable<Option<Mac>>,
    flow_by_mac: FlowByMac,
    retries: Retries,
    arp_cache: ArpCache,
    /// The longest SDU that was reported to the manager and the flows, in bytes.
    sdu_bytes_max: usize,
    is_up: bool,
    is_removed: bool,
    is_armed: bool,
    /// Whether the interface has been checked at least once.
    has_looked: bool,
    now: Instant,
    /// Links whose packets wait because the interface has no room.
    stalled: VecDeque<LinkId>,
    taps: Taps,
}

impl Eth {
    fn new(mut context: AppContext, nic: Nic) -> Eth {
        Eth {
            // Captures of this shim show frames, so the flow table must not capture SDUs.
            taps: std::mem::take(&mut context.taps),
            name: format!("ipcp-{}", context.ipcp),
            retries: Retries::new(carina_time::Duration::from_nanos(nic.config().timeout_ns)),
            sdu_bytes_max: nic.sdu_bytes_max(),
            nic,
            flows: FlowTable::new(context),
            flow_by_mac: FlowByMac::default(),
            arp_cache: ArpCache::default(),
            is_up: false,
            is_removed: false,
            is_armed: false,
            has_looked: false,
            now: Instant::ZERO,
            stalled: VecDeque::new(),
        }
    }

    /// Checks the interface, and reports when it goes up or down.
    fn follow_link(&mut self, links: &mut Links) {
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let looked = if is_first {
            self.nic.check_now().map(|()| true)
        } else {
            self.nic.check_interface(self.now)
        };
        match looked {
            Ok(true) => {
                self.follow_mtu(links);
                if !std::mem::replace(&mut self.is_up, true) {
                    self.flows.link_up(self.nic.label());
                }
            }
            Ok(false) => {}
            Err(error) => {
                let reason = error.to_string();
                let was_up = std::mem::take(&mut self.is_up);
                if was_up || is_first {
                    self.fail_all(&reason, links);
                    self.arp_cache.clear();
                    self.flows.link_down(reason);
                }
            }
        }
    }

    /// Sends the ARP requests that are due, and gives up those that have timed out.
    fn send_due_requests(&mut self, links: &mut Links) {
        while let Some(due) = self.retries.poll(self.now) {
            let (Due::Send(port) | Due::GiveUp(port)) = due;
            let Some(at) = self.flows.index_of_port(port) else {
                continue;
            };
            let Some(names) = self.flows.get_mut(at).map(|flow| flow.names.clone()) else {
                continue;
            };
            match due {
                Due::Send(_) => self.send_request(&names.local, &names.remote),
                Due::GiveUp(_) => {
                    let label = self.nic.label();
                    tracing::info!(target: "carina::shim::eth", ipcp = %self.flows.ipcp,
                        remote = %names.remote, "ARP request timed out");
                    let text = format!("no station on {label} answered for {}", names.remote);
                    self.close_flow(at, Close::Refused(text), links);
                }
            }
        }
    }

    fn send_request(&mut self, local: &AppName, remote: &AppName) {
        let dialect = self.nic.config().dialect;
        let (Some(sender), Some(target)) = (to_text(local, &dialect), to_text(remote, &dialect))
        else {
            return;
        };
        let arp = Arp {
            operation: Operation::Request,
            sender_mac: self.nic.mac(),
            sender: &sender,
            target_mac: dialect.unknown,
            target: &target,
        };
        self.send_arp(&arp, Mac::BROADCAST);
    }

    fn send_arp(&mut self, arp: &Arp<'_>, to: Mac) {
        // Cannot fail: the names were checked when they were registered or requested.
        let Ok(payload) = arp.encode() else { return };
        match self.nic.send_arp(self.now, to, &payload) {
            Sent::Yes => {
                self.flows.row.add(Value::ControlOut, 1);
                if self.taps.is_on()
                    && let Some(packet) = Packet::from_vec(payload)
                {
                    let ethertype = self.nic.config().dialect.ethertype;
                    self.note(Direction::Out, (self.nic.mac(), to, ethertype), &packet);
                }
            }
            Sent::Impaired => self.flows.row.add(Value::DropImpaired, 1),
            // The frame was not sent; the request is repeated later.
            Sent::NoRoom => self.flows.row.add(Value::DropNoBuffer, 1),
        }
    }

    /// Processes a received frame.
    fn receive(&mut self, received: Received, links: &mut Links) {
        let own = self.nic.mac();
        let (from, to, ethertype) = (
            received.header.src,
            received.header.dst,
            received.header.ethertype,
        );
        let is_ours = to == own || to == Mac::BROADCAST;
        // An interface in promiscuous mode also receives frames for other stations.
        if !is_ours || from == own {
            return;
        }
        self.note(Direction::In, (from, to, ethertype), &received.payload);
        if received.is_cut || from.is_group() {
            return self.flows.row.add(Value::DropMalformed, 1);
        }
        if ethertype == ETHERTYPE_RINA {
            self.receive_sdu(from, received.payload, links);
        } else {
            let mut payload = Vec::with_capacity(received.payload.len());
            received.payload.append_to(&mut payload);
            self.receive_arp(from, &payload, links);
        }
    }

    fn receive_arp(&mut self, from: Mac, payload: &[u8], links: &mut Links) {
        let dialect = self.nic.config().dialect;
        let arp = match Arp::decode(payload) {
            // A station may only send ARP messages in its own name.
            Ok(arp) if arp.sender_mac == from => arp,
            Err(ArpError::Other) => return,
            Ok(_) | Err(_) => return self.flows.row.add(Value::DropMalformed, 1),
        };
        let names = (
            from_text(arp.sender, &dialect),
            from_text(arp.target, &dialect),
        );
        // A new flow must start with the current MTU.
        self.nic.check_soon();
        self.follow_link(links);
        let (Some(remote), Some(local)) = names else {
            return self.flows.row.add(Value::DropMalformed, 1);
        };
        self.flows.row.add(Value::ControlIn, 1);
        match arp.operation {
            Operation::Request if !self.is_up || !self.flows.names.contains(&local) => {}
            Operation::Request => {
                let reply = Arp {
                    operation: Operation::Reply,
                    sender_mac: self.nic.mac(),
                    sender: arp.target,
                    target_mac: from,
                    target: arp.sender,
                };
                self.send_arp(&reply, from);
                self.handle_request(from, Names { local, remote }, links);
            }
            Operation::Reply if arp.target_mac == self.nic.mac() => {
                self.handle_reply(from, Names { local, remote }, links);
            }
            Operation::Reply => {}
        }
    }

    /// Copies a frame to the captures. The kernel has removed its tag, so the tag is added again.
    #[inline]
    fn note(&self, direction: Direction, (src, dst, ethertype): (Mac, Mac, u16), sdu: &Packet) {
        if self.taps.is_on() {
            let header = Header {
                dst,
                src,
                tag: Tag::of_vlan(TPID_CUSTOMER, self.nic.config().vlan),
                ethertype,
            };
            let mut head = [0; HEADER_BYTES_MAX];
            let count = header.encode(&mut head);
            self.taps.note(direction, &head[..count], sdu);
        }
    }

    /// Sends the packets on a flow's link, as long as the interface has room.
    fn drain(&mut self, link: LinkId, links: &mut Links) -> bool {
        let Some(at) = self.flows.index_of_link(link, links) else {
            return false;
        };
        let Some(mac) = self.flows.get_mut(at).and_then(|flow| flow.peer) else {
            return false;
        };
        let (mut moved, sdu_bytes_max) = (false, self.nic.sdu_bytes_max());
        for _ in 0..self.nic.room() {
            let Some(packet) = links.pop(link) else {
                return moved;
            };
            moved = true;
            if !self.flows.fits(at, &packet, sdu_bytes_max) {
                continue;
            }
            // A frame without payload would not arrive, or would arrive with padding.
            if packet.is_empty() {
                self.flows.row.add(Value::DropEmpty, 1);
                continue;
            }
            match self.nic.send(self.now, mac, &packet) {
                Sent::Yes => {
                    self.flows.count_sent(packet.len());
                    let ends = (self.nic.mac(), mac, ETHERTYPE_RINA);
                    self.note(Direction::Out, ends, &packet);
                }
                Sent::Impaired => self.flows.row.add(Value::DropImpaired, 1),
                Sent::NoRoom => self.flows.row.add(Value::DropNoBuffer, 1),
            }
        }
        if links.queued(link) > 0 {
            links.leave(link);
            self.stalled.push_back(link);
        }
        moved
    }

    /// Reports how many bytes sources may send in this breath.
    fn state_room(&mut self, links: &mut Links) {
        let room = self.nic.room();
        let had_stalled = !self.stalled.is_empty();
        if room > 0 {
            for link in self.stalled.drain(..) {
                links.retry(link);
            }
        }
        // Links that already wait come first.
        let bytes = if !had_stalled && self.is_up {
            (room as u64).saturating_mul(ROOM_PER_FRAME)
        } else {
            0
        };
        links.set_room(self.flows.id, bytes);
    }
}

impl App for Eth {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, now: Instant, links: &mut Links) {
        self.now = now;
        if self.is_removed {
            return;
        }
        self.follow_link(links);
        self.handle_requests(links);
        if self.is_removed {
            return;
        }
        self.send_due_requests(links);
        let lost = self.nic.move_due(now);
        self.flows.row.add(Value::DropNoBuffer, lost);
        // Windowed links turn reports into credit themselves.
        while links.next_return(self.flows.id).is_some() {}
        self.state_room(links);
    }

    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
        self.now = now;
        if self.is_removed {
            return false;
        }
        let has_breathed = self.nic.breathe(now, links);
        for moved in 0..BURST {
            let Some(received) = self.nic.next() else {
                return has_breathed || moved > 0;
            };
            self.receive(received, links);
        }
        true
    }

    fn push(&mut self, now: Instant, links: &mut Links) -> bool {
        // A link may wake an app within a breath, after `prepare` of this breath.
        self.now = now;
        let mut moved = false;
        while let Some(link) = links.next_ready(self.flows.id) {
            moved |= self.drain(link, links);
            if links.queued(link) == 0 && links.closed(link).is_some() {
                self.flow_ended(link, links);
                links.wake(self.flows.id);
            }
        }
        moved
    }

    fn release_burst(&mut self, now: Instant, links: &mut Links) {
        if !self.nic.release_burst(now, links) {
            // `follow_link` reports the reason.
            self.flows.row.add(Value::DropLinkDown, 1);
        }
    }

    fn arm(&mut self, now: Instant, links: &mut Links) -> bool {
        if self.is_removed {
            return true;
        }
        if self.flows.has_requests() || self.nic.has_frame() {
            return false;
        }
        let missed = self.nic.take_missed();
        self.flows.row.add(Value::DropNoBuffer, missed);
        if !self.nic.arm(now, links) {
            return false;
        }
        self.is_armed = true;
        true
    }

    fn disarm(&mut self) {
        // While it is awake, the app checks the interface periodically.
        if std::mem::take(&mut self.is_armed) {
            self.nic.disarm();
            self.nic.check_soon();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_removed {
            return None;
        }
        let stalled = (!self.stalled.is_empty()).then_some(self.now + STALLED);
        [self.retries.next_at(), self.nic.next_deadline(), stalled]
            .into_iter()
            .flatten()
            .min()
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        let fds = self.nic.wait_fds().into_iter();
        fds.map(|fd| (fd, Interest::ReadEdge)).collect()
    }
}

/// The text of a name on the wire; `None` if the dialect cannot express it.
fn to_text(name: &AppName, dialect: &Dialect) -> Option<String> {
    // A name with a fifth part would lose it.
    Name::split(name.as_str(), '|')?.to_text(dialect).ok()
}

/// The name that a text on the wire means: its parts with `|` between, without empty parts at the
/// end.
fn from_text(text: &str, dialect: &Dialect) -> Option<AppName> {
    let name = Name::parse(text, dialect).ok()?;
    let parts = [name.ap, name.api, name.ae, name.aei];
    let used = parts.iter().rposition(|part| !part.is_empty())? + 1;
    AppName::new(parts[..used].join("|")).ok()
}

/// Bytes of ring space counted for each free frame. Sources that send shorter SDUs find the ring
/// full and wait on their links.
const ROOM_PER_FRAME: u64 = 512;

/// When to check again whether the kernel has room.
const STALLED: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests;
