//! A small owner of a device: VMPI-HL over one side, as the hv shim drives it.

use std::collections::{BTreeMap, VecDeque};

use carina_ring::Refused;
use carina_time::Instant;
use carina_wire::FlowSpec;
use carina_wire::vmpi::{CONTROL_BYTES_MAX, Channel, DataHeader, HEADER_BYTES};

use super::{Deadline, Device, Fixture, Sides};
use crate::hl::{CloseReason, Config, Endpoint, Event, Rx, Side, record_cost};
use crate::ll::{DownReason, LinkState};

/// The window that each side grants on a channel, in bytes.
pub(super) const WINDOW: u32 = 8192;

/// Records that a node reads or writes in one turn.
const BURST: usize = 32;

/// One side of a link with its channels.
pub(super) struct Node {
    pub(super) endpoint: Endpoint,
    pub(super) flows: BTreeMap<Channel, Flow>,
    /// Violations of the peer that this node found.
    pub(super) violations: u64,
    is_up: bool,
    /// The channel after which the next turn begins to write.
    last: Channel,
}

/// One end of a channel, with the application that uses it.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) is_open: bool,
    pub(super) closed: Option<CloseReason>,
    pub(super) to_send: VecDeque<Vec<u8>>,
    sent_of_first: usize,
    pub(super) received: Vec<Vec<u8>>,
    arriving: Vec<u8>,
    /// The application reads nothing.
    pub(super) is_stopped: bool,
    /// Ring space of the pieces that the application has not read yet.
    pub(super) unread_bytes: u64,
    consumed_bytes: u64,
}

impl Node {
    pub(super) fn new(side: Side, device: &Device) -> Node {
        let config = Config {
            piece_bytes_max: 1000,
            bundle_bytes_max: 0,
            ..Config::new(side, "conformance", device.record_bytes_max())
        };
        let mut endpoint = Endpoint::new(config).expect("the name is well formed");
        endpoint
            .register("server")
            .expect("the name is well formed");
        Node {
            endpoint,
            flows: BTreeMap::new(),
            violations: 0,
            is_up: false,
            last: Channel::CONTROL,
        }
    }

    pub(super) fn allocate(&mut self) -> Channel {
        let spec = FlowSpec::reliable();
        let channel = self
            .endpoint
            .allocate("client", "server", spec, WINDOW)
            .expect("a channel is free");
        self.flows.insert(channel, Flow::default());
        channel
    }

    pub(super) fn flow(&mut self, channel: Channel) -> &mut Flow {
        self.flows.get_mut(&channel).expect("the flow exists")
    }

    /// Looks at the link, then reads and writes a burst.
    pub(super) fn turn(&mut self, device: &mut Device, now_ns: u64) {
        match device.link(now_ns) {
            LinkState::Up if !self.is_up => {
                self.is_up = true;
                self.endpoint.link_up(Instant::from_nanos(now_ns));
            }
            LinkState::Up => {}
            LinkState::Down(reason) => {
                self.is_up = false;
                self.endpoint.link_down(reason.code(), &reason.to_string());
            }
        }
        self.drain_events();
        if !self.is_up {
            return;
        }
        let result = self.read(device).and_then(|()| self.write(device));
        if let Err(reason) = result {
            self.violations += 1;
            self.is_up = false;
            let reason = device.fail(now_ns, reason);
            self.endpoint.fail(reason.code(), &reason.to_string());
        }
        self.drain_events();
    }

    fn read(&mut self, device: &mut Device) -> Result<(), DownReason> {
        for _ in 0..BURST {
            let Some(lease) = device.next().map_err(DownReason::Corrupt)? else {
                break;
            };
            let record = lease.to_vec();
            device.release();
            let header = record.first_chunk::<HEADER_BYTES>().copied();
            let payload = record.get(HEADER_BYTES..).unwrap_or_default();
            let rx = self
                .endpoint
                .on_rx(header.unwrap_or_default(), record.len());
            match rx.map_err(violation)? {
                Rx::Control => self.endpoint.handle_control(payload).map_err(violation)?,
                Rx::Deliver { channel, more } => self.deliver(channel, more, payload),
                Rx::Discard => {}
            }
            self.drain_events();
        }
        for (channel, flow) in &mut self.flows {
            if !flow.is_stopped && flow.unread_bytes > 0 {
                flow.consumed_bytes += std::mem::take(&mut flow.unread_bytes);
                self.endpoint.consumed(*channel, flow.consumed_bytes);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, channel: Channel, more: bool, payload: &[u8]) {
        let Some(flow) = self.flows.get_mut(&channel) else {
            return;
        };
        flow.unread_bytes += record_cost(payload.len());
        assert!(
            flow.unread_bytes <= u64::from(WINDOW),
            "more than the window is on its way to the application"
        );
        flow.arriving.extend(payload);
        if !more {
            flow.received.push(std::mem::take(&mut flow.arriving));
        }
    }

    fn write(&mut self, device: &mut Device) -> Result<(), DownReason> {
        let mut control = Vec::new();
        while device.free_bytes().map_err(DownReason::Corrupt)? as u64
            > record_cost(HEADER_BYTES + CONTROL_BYTES_MAX)
            && self.endpoint.poll_control(&mut control)
        {
            put(device, [0; HEADER_BYTES], &control)?;
        }
        for _ in 0..BURST {
            if !self.write_piece(device)? {
                break;
            }
        }
        device.publish();
        Ok(())
    }

    /// Writes one piece of the next channel that may send. Returns false if none may.
    fn write_piece(&mut self, device: &mut Device) -> Result<bool, DownReason> {
        let after: Vec<Channel> = self.flows.range(self.last..).map(|(c, _)| *c).collect();
        let before = self.flows.range(..self.last).map(|(c, _)| *c);
        let next = after.into_iter().filter(|c| *c != self.last).chain(before);
        let next: Vec<Channel> = next.chain([self.last]).collect();
        for channel in next {
            let Some(flow) = self.flows.get_mut(&channel) else {
                continue;
            };
            let Some(sdu) = flow.to_send.front().filter(|_| flow.is_open) else {
                continue;
            };
            let rest = &sdu[flow.sent_of_first..];
            let Some(bytes) = self.endpoint.next_piece_bytes(channel, rest.len()) else {
                continue;
            };
            let more = bytes < rest.len();
            let header = DataHeader { channel, more };
            if !put(device, header.encode(), &rest[..bytes])? {
                return Ok(false);
            }
            self.endpoint.on_tx(channel, bytes);
            flow.sent_of_first += bytes;
            if !more {
                flow.to_send.pop_front();
                flow.sent_of_first = 0;
            }
            self.last = channel;
            return Ok(true);
        }
        Ok(false)
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { channel, .. } => {
                    let answer = self.endpoint.respond(channel, Ok(WINDOW));
                    answer.expect("the channel is offered");
                    let flow = Flow {
                        is_open: true,
                        ..Flow::default()
                    };
                    self.flows.insert(channel, flow);
                }
                Event::Allocated { channel } => self.flow(channel).is_open = true,
                Event::Closed { channel, reason } => {
                    if let Some(flow) = self.flows.get_mut(&channel) {
                        flow.is_open = false;
                        flow.closed = Some(reason);
                    }
                }
                _ => {}
            }
        }
    }
}

fn violation(violation: crate::hl::Violation) -> DownReason {
    DownReason::Violation {
        code: violation.code(),
        reason: violation.to_string(),
    }
}

/// Writes a record; false if the ring is full.
fn put(device: &mut Device, header: [u8; 4], payload: &[u8]) -> Result<bool, DownReason> {
    match device.reserve(HEADER_BYTES + payload.len()) {
        Ok(mut slot) => {
            slot.write_at(0, &header);
            slot.write_at(HEADER_BYTES, payload);
            slot.commit(false);
            Ok(true)
        }
        Err(Refused::Full) => Ok(false),
        Err(Refused::Corrupt(corrupt)) => Err(DownReason::Corrupt(corrupt)),
        Err(error) => panic!("a record of {} bytes: {error}", payload.len()),
    }
}

/// Two nodes over one link.
pub(super) struct Nodes<F> {
    pub(super) sides: Sides<F>,
    pub(super) host: Node,
    pub(super) guest: Node,
}

impl<F: Fixture> Nodes<F> {
    /// Opens both sides and waits until both nodes have greeted each other.
    pub(super) fn up(fixture: F) -> Nodes<F> {
        let mut sides = Sides::new(fixture);
        let host = Node::new(Side::Host, sides.device(Side::Host));
        let guest = Node::new(Side::Guest, sides.device(Side::Guest));
        let mut nodes = Nodes { sides, host, guest };
        nodes.run_until("greeting", |nodes| {
            nodes.host.endpoint.is_up() && nodes.guest.endpoint.is_up()
        });
        nodes
    }

    /// Lets both nodes take turns until `is_reached`.
    pub(super) fn run_until(&mut self, what: &str, is_reached: impl Fn(&Nodes<F>) -> bool) {
        let deadline = Deadline::new();
        while !is_reached(self) {
            self.turn();
            deadline.check(what);
        }
    }

    pub(super) fn turn(&mut self) {
        self.sides.fixture.serve();
        self.sides.ahead_ns += 100_000;
        let now_ns = self.sides.now_ns();
        self.host.turn(self.sides.device(Side::Host), now_ns);
        self.guest.turn(self.sides.device(Side::Guest), now_ns);
        std::thread::yield_now();
    }
}
