//! The shim IPC process for hypervisors. Specified in the Pouzin Society's "Shim DIF for
//! Hypervisors", summarized in "Building the Future Internet through FIRE" (2017), section
//! 16.4.1.2, and in S. Vrijders and others, "Reducing Complexity of Virtual Machine Networking"
//! (2016), section IV and figure 2.
//!
//! It is an app of the engine that serves one VMPI device, its channels, and a pair of links per
//! flow.
//!
//! ```text
//!   flow app  -- from_flow (credit: what the peer granted) -->  hv app  -->  device ring
//!   flow app  <-- to_flow (no credit: the peer stays in its window) --  hv app  <--  device ring
//! ```
//!
//! [`carina_vmpi::hl`] implements the protocol. This app moves records and reports to the manager.

mod bundles;
mod device;
mod events;
mod requests;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use carina_api::{IpcpId, PortId};
use carina_dataplane::{
    AppContext, BuildError, Event, FlowLinks, IpcpBuilder, Mailbox, PortTable, RequestQueue,
};
use carina_engine::counters::{Row, Value};
use carina_engine::{App, AppId, BURST, BURST_BYTES, BundleLimits, Close, LinkId, Links, Packet};
use carina_frame_engine::tap::Taps;
use carina_ring::{Lease, Refused};
use carina_sys::Interest;
use carina_time::{Duration, Instant};
use carina_vmpi::hl::{self, Rx, Side, Violation};
use carina_vmpi::ll::VmpiImpl;
use carina_wire::pcapng::Direction;
use carina_wire::vmpi::{BundleHeader, CONTROL_BYTES_MAX, Channel, DataHeader, HEADER_BYTES};

struct ChannelFlow {
    port: PortId,
    state: FlowState,
    links: Option<FlowLinks>,
    /// Longest piece of an SDU, in bytes. Known once the channel is open.
    piece_max: usize,
    /// Bytes sent of the current, incomplete SDU.
    sdu_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowState {
    /// An application of this system has requested the flow; the peer has not answered yet.
    Requested,
    /// The peer has requested the flow; the application of this system has not answered yet.
    Offered,
    Open,
}

/// The app of a hypervisor shim.
pub(crate) struct Hv {
    id: AppId,
    ipcp: IpcpId,
    name: String,
    device: Box<dyn VmpiImpl>,
    hl: hl::Endpoint,
    is_connected: bool,
    requests: RequestQueue,
    events: Mailbox<Event>,
    ports: PortTable,
    row: Row,
    /// Flows, indexed by channel number.
    flows: Vec<Option<ChannelFlow>>,
    channels: HashMap<PortId, Channel>,
    /// Channels whose credit from the peer has changed and must be passed on to their flow.
    regrant: Vec<Channel>,
    control: Vec<u8>,
    has_read: bool,
    has_written: bool,
    is_removed: bool,
    is_armed: bool,
    /// Whether too many events wait for the manager. Nothing is read from the peer then.
    is_flooded: bool,
    /// Whether a record was moved in the last breath.
    has_moved: bool,
    /// When the last breath that moved a record ended.
    moved_at: Instant,
    now: Instant,
    taps: Taps,
}

/// The data from which the data plane creates the app of a hypervisor shim.
pub struct HvBuilder {
    /// Name of the IPCP, which its counters show.
    pub label: String,
    /// The VMPI device between the VM and its host, already open.
    pub device: Box<dyn VmpiImpl>,
    /// Which side this system is: host or guest.
    pub side: Side,
    /// Name of this system, for the hello message to the peer.
    pub name: String,
}

impl IpcpBuilder for HvBuilder {
    fn label(&self) -> String {
        format!("hv {}", self.label)
    }

    fn enforces_credit(&self) -> bool {
        true
    }

    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError> {
        let config = hl::Config::new(self.side, self.name, self.device.record_bytes_max());
        let hl = hl::Endpoint::new(config);
        let hl = hl.map_err(|error| BuildError::Kind(error.into()))?;
        Ok(Box::new(Hv::new(context, self.device, hl)))
    }
}

impl Hv {
    /// Creates the app, with its link down.
    fn new(context: AppContext, device: Box<dyn VmpiImpl>, hl: hl::Endpoint) -> Hv {
        Hv {
            id: context.id,
            ipcp: context.ipcp,
            name: format!("ipcp-{}", context.ipcp),
            device,
            hl,
            is_connected: false,
            requests: context.requests,
            events: context.events,
            ports: context.ports,
            row: context.row,
            flows: Vec::new(),
            channels: HashMap::new(),
            regrant: Vec::new(),
            control: Vec::with_capacity(CONTROL_BYTES_MAX),
            has_read: false,
            has_written: false,
            is_removed: false,
            is_armed: false,
            is_flooded: false,
            has_moved: false,
            moved_at: Instant::ZERO,
            now: Instant::ZERO,
            taps: context.taps,
        }
    }

    fn flow(&self, channel: Channel) -> Option<&ChannelFlow> {
        self.flows.get(channel.index())?.as_ref()
    }

    fn flow_mut(&mut self, channel: Channel) -> Option<&mut ChannelFlow> {
        self.flows.get_mut(channel.index())?.as_mut()
    }

    fn insert_flow(&mut self, channel: Channel, flow: ChannelFlow) {
        if self.flows.len() <= channel.index() {
            self.flows.resize_with(channel.index() + 1, || None);
        }
        self.channels.insert(flow.port, channel);
        self.flows[channel.index()] = Some(flow);
    }

    fn remove_flow(&mut self, channel: Channel) -> Option<ChannelFlow> {
        let flow = self.flows.get_mut(channel.index())?.take()?;
        self.channels.remove(&flow.port);
        Some(flow)
    }

    /// Passes the credit that the peer grants on to the flows. Called when the links hold no
    /// packets that the endpoint has not counted yet.
    fn grant(&mut self, links: &mut Links) {
        if self.regrant.is_empty() || !self.hl.is_up() {
            return;
        }
        let mut waiting = Vec::new();
        for channel in std::mem::take(&mut self.regrant) {
            let credit = self.hl.tx_credit(channel);
            let piece = self.hl.next_piece_bytes(channel, usize::MAX);
            let Some(flow) = self
                .flow_mut(channel)
                .filter(|flow| flow.state == FlowState::Open)
            else {
                continue;
            };
            flow.piece_max = flow.piece_max.max(piece.unwrap_or(0));
            let piece_max = flow.piece_max;
            match flow.links {
                Some(ends) if credit > 0 => {
                    links.set_credit(ends.from_flow, credit, piece_max);
                    if let Some((bytes_max, sdu_bytes_max)) = self.hl.bundle_bytes_max(channel) {
                        let limits = BundleLimits {
                            bytes_max,
                            sdu_bytes_max,
                        };
                        links.accept_bundles(ends.from_flow, limits);
                    }
                }
                _ => waiting.push(channel),
            }
        }
        // While control messages wait for room, no SDU may overtake them.
        if self.hl.has_control() {
            self.regrant.append(&mut waiting);
        }
    }

    /// Processes one record of the device.
    fn receive(&mut self, mut lease: Lease, links: &mut Links) -> Result<(), Violation> {
        let header = lease.copy_prefix::<HEADER_BYTES>().unwrap_or_default();
        if BundleHeader::is_in(header) {
            return self.receive_bundle(lease, links);
        }
        match self.hl.on_rx(header, lease.len())? {
            Rx::Deliver { channel, more } => {
                lease.advance(HEADER_BYTES);
                self.row
                    .add(if more { Value::PiecesIn } else { Value::SdusIn }, 1);
                self.row.add(Value::BytesIn, lease.len() as u64);
                let ends = self.flow(channel).and_then(|flow| flow.links);
                let packet = Packet::from_lease(lease, more);
                self.taps.note(Direction::In, &header, &packet);
                let taken = ends.is_some_and(|ends| links.push(ends.to_flow, packet).is_ok());
                if !taken {
                    self.row.add(Value::DropFlowEnded, 1);
                }
            }
            Rx::Control => {
                lease.advance(HEADER_BYTES);
                self.row.add(Value::ControlIn, 1);
                let message = lease.to_vec();
                self.note_control(Direction::In, &message);
                self.hl.handle_control(&message)?;
                self.dispatch_events(links);
                self.is_flooded = self.events.len() > EVENTS_MAX;
            }
            Rx::Discard => self.row.add(Value::DropUnknownChannel, 1),
        }
        Ok(())
    }

    /// Counts a packet towards its SDU. Returns false when the SDU is longer than the peer accepts;
    /// sending it would make the peer cut the whole link.
    fn fits_sdu(&mut self, channel: Channel, packet: &Packet) -> bool {
        // The link already limits SDUs in bundles.
        if packet.bundle().is_some() {
            return true;
        }
        let sdu_bytes_max = self.hl.limits().sdu_bytes_max;
        let Some(flow) = self.flow_mut(channel) else {
            return true;
        };
        let sdu_bytes = flow.sdu_bytes + packet.len() as u64;
        flow.sdu_bytes = if packet.more() { sdu_bytes } else { 0 };
        sdu_bytes <= sdu_bytes_max
    }

    /// Ends a flow whose application sends an SDU that the peer does not accept.
    fn end_flow(&mut self, channel: Channel, text: String, links: &mut Links) {
        let Some(flow) = self.remove_flow(channel) else {
            return;
        };
        self.hl.deallocate(channel, &text);
        self.row.add(Value::FlowsClosed, 1);
        if let Some(ends) = flow.links {
            links.close(ends.to_flow, Close::Failed(text));
            let lost = links.disconnect(ends.from_flow);
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        links.wake(self.id);
    }

    /// Puts one packet of a flow into the device.
    fn send(&mut self, channel: Channel, packet: &Packet) -> Result<(), Refused> {
        if let Some(sdus) = packet.bundle() {
            return self.send_bundle(channel, packet, sdus);
        }
        let header = DataHeader {
            channel,
            more: packet.more(),
        }
        .encode();
        let len = packet.len();
        let mut slot = self.device.reserve(HEADER_BYTES + len)?;
        slot.write_at(0, &header);
        packet.copy_into(&mut slot, HEADER_BYTES);
        slot.commit(false);
        self.taps.note(Direction::Out, &header, packet);
        self.has_written = true;
        self.has_moved = true;
        self.hl.on_tx(channel, len);
        self.row.add(
            if packet.more() {
                Value::PiecesOut
            } else {
                Value::SdusOut
            },
            1,
        );
        self.row.add(Value::BytesOut, len as u64);
        Ok(())
    }

    /// Removes a flow that its application has closed, after its SDUs were put into the device.
    fn flow_ended(&mut self, link: LinkId, channel: Channel, close: &Close, links: &mut Links) {
        links.disconnect(link);
        let is_writer = |flow: &ChannelFlow| flow.links.is_some_and(|ends| ends.from_flow == link);
        if !self.flow(channel).is_some_and(is_writer) {
            return;
        }
        let reason = match close {
            Close::Graceful(text) | Close::Failed(text) | Close::Refused(text) => text,
        };
        self.hl.deallocate(channel, reason);
        if let Some(flow) = self.remove_flow(channel) {
            self.row.add(Value::FlowsClosed, 1);
            if let Some(ends) = flow.links {
                let lost = links.disconnect(ends.to_flow);
                self.row.add(Value::DropFlowEnded, lost as u64);
            }
        }
    }
}

impl App for Hv {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, now: Instant, links: &mut Links) {
        self.now = now;
        if std::mem::take(&mut self.has_moved) {
            self.moved_at = now;
        }
        self.handle_requests(links);
        if self.is_removed {
            return;
        }
        self.follow_link(now);
        while let Some((link, total)) = links.next_return(self.id) {
            let channel = Channel::new(links.source_cookie(link) as u16);
            if self
                .flow(channel)
                .and_then(|flow| flow.links)
                .is_some_and(|w| w.to_flow == link)
            {
                self.hl.consumed(channel, total);
            }
        }
        self.send_control();
        let free = self.free_bytes();
        // The calls above may have found a broken ring or protocol. The resulting events end flows
        // in this breath.
        self.dispatch_events(links);
        self.grant(links);
        links.set_reserve(self.id, self.device.reserve_bytes() as u64);
        links.set_room(self.id, free.saturating_sub(2 * CONTROL_ROOM) as u64);
    }

    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
        self.now = now;
        if self.is_removed || !self.is_connected {
            return false;
        }
        if self.is_flooded {
            self.is_flooded = self.events.len() > EVENTS_MAX;
        }
        let mut bytes = 0;
        for moved in 0..BURST {
            if self.is_flooded {
                return moved > 0;
            }
            if bytes >= BURST_BYTES {
                break;
            }
            let lease = match self.device.next() {
                Ok(Some(lease)) => lease,
                Ok(None) => return moved > 0,
                Err(corrupt) => {
                    self.ring_broke(corrupt);
                    self.dispatch_events(links);
                    return true;
                }
            };
            self.has_read = true;
            self.has_moved = true;
            bytes += lease.len();
            if let Err(violation) = self.receive(lease, links) {
                self.give_up(&violation);
                self.dispatch_events(links);
                return true;
            }
        }
        true
    }

    fn push(&mut self, now: Instant, links: &mut Links) -> bool {
        // A link may wake an app within a breath, after `prepare` of this breath.
        self.now = now;
        let mut moved = false;
        while let Some(link) = links.next_ready(self.id) {
            let channel = Channel::new(links.sink_cookie(link) as u16);
            while let Some(packet) = links.pop(link) {
                moved = true;
                if !self.is_connected || self.is_removed {
                    self.row.add(Value::DropLinkDown, 1);
                } else if !self.fits_sdu(channel, &packet) {
                    self.row.add(Value::DropTooLong, 1);
                    let sdu_max = self.hl.limits().sdu_bytes_max;
                    let text =
                        format!("an SDU of more than {sdu_max} bytes, the most the peer accepts");
                    self.end_flow(channel, text, links);
                } else if let Err(refused) = self.send(channel, &packet) {
                    self.row.add(Value::DropLinkDown, 1);
                    self.refused(refused);
                    self.dispatch_events(links);
                }
            }
            if let Some(close) = links.closed(link).cloned() {
                self.flow_ended(link, channel, &close, links);
                links.wake(self.id);
            }
        }
        moved
    }

    fn release_burst(&mut self, _now: Instant, _links: &mut Links) {
        if std::mem::take(&mut self.has_written) {
            self.device.publish();
        }
        if std::mem::take(&mut self.has_read) {
            self.device.release();
        }
    }

    fn arm(&mut self, now: Instant, links: &mut Links) -> bool {
        if self.is_removed {
            return true;
        }
        if !self.requests.is_empty() {
            return false;
        }
        // No event wakes a polling side. While there is traffic it stays awake, because a timer is
        // slower than the next message, unless another thread needs this processor.
        if self.is_connected
            && !links.leaves_processor()
            && (self.has_moved || now.since(self.moved_at) < HOT)
            && self.device.wait_fd().is_none()
        {
            return false;
        }
        self.is_armed = true;
        let waits_for_room = self.hl.has_control() || links.is_wanted(self.id);
        let wanted = self.device.record_bytes_max() / SPACE_DIVISOR;
        // There may be room, or the ring is corrupt: the next breath checks.
        if waits_for_room && self.is_connected && self.device.arm_space(wanted) != Ok(true) {
            return false;
        }
        self.device.arm(now.as_nanos())
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.device.disarm();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_removed {
            return None;
        }
        let device = Instant::from_nanos(self.device.next_deadline_ns());
        let hl = self.hl.next_deadline();
        Some(hl.map_or(device, |hl| hl.min(device)))
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        self.device
            .wait_fd()
            .map(|fd| (fd, Interest::ReadEdge))
            .into_iter()
            .collect()
    }
}

/// Space in the device that one control message may need, in bytes.
const CONTROL_ROOM: usize = 16 + HEADER_BYTES + CONTROL_BYTES_MAX;

/// Largest number of events that may wait for the manager before nothing more is read from the
/// peer. A guest that registers and unregisters without end must not fill the memory.
const EVENTS_MAX: usize = 4096;

/// How long a polling side stays awake after the last record: a few round trips through two
/// schedulers.
const HOT: Duration = Duration::from_millis(1);

/// An app that waits for space is woken when the longest record, divided by this, fits.
const SPACE_DIVISOR: usize = 2;
