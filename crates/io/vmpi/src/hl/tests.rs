//! Two endpoints and the records between them, in simulated time and seeded order.

use std::collections::{BTreeMap, VecDeque};

use carina_random::SplitMix;
use carina_wire::FlowSpec;
use carina_wire::vmpi::{CONTROL_BYTES_MAX, Channel, DataHeader, Outcome};

use super::*;

mod violations;

/// One flow, as its application sees it.
#[derive(Default)]
struct Flow {
    is_open: bool,
    /// SDUs to send. The first may already be sent in part.
    to_send: VecDeque<Vec<u8>>,
    sent_of_first: usize,
    /// SDUs that were received completely.
    received: Vec<Vec<u8>>,
    arriving: Vec<u8>,
    /// Ring space of each piece that the reader has not read yet.
    unread: VecDeque<u64>,
    unread_bytes: u64,
    released: u64,
    is_stopped: bool,
    closed: Option<CloseReason>,
    denied: Option<Outcome>,
}

struct Node {
    endpoint: Endpoint,
    /// The ring toward this node: header and payload of each record.
    ring: VecDeque<(DataHeader, Vec<u8>)>,
    flows: BTreeMap<Channel, Flow>,
    events: Vec<Event>,
    violation: Option<Violation>,
}

const WINDOW: u32 = 4096;

impl Node {
    fn new(side: Side, name: &str) -> Node {
        let config = Config {
            piece_bytes_max: 600,
            ..Config::new(side, name, 1 << 16)
        };
        Node {
            endpoint: Endpoint::new(config).unwrap(),
            ring: VecDeque::new(),
            flows: BTreeMap::new(),
            events: Vec::new(),
            violation: None,
        }
    }

    fn drain_events(&mut self, answer: bool) {
        while let Some(event) = self.endpoint.poll_event() {
            match &event {
                Event::Incoming { channel, .. } if answer => {
                    self.endpoint.respond(*channel, Ok(WINDOW)).unwrap();
                    self.flows.insert(
                        *channel,
                        Flow {
                            is_open: true,
                            ..Flow::default()
                        },
                    );
                }
                Event::Allocated { channel } => {
                    self.flows.get_mut(channel).unwrap().is_open = true;
                }
                Event::Denied {
                    channel, outcome, ..
                } => {
                    self.flows.get_mut(channel).unwrap().denied = Some(*outcome);
                }
                Event::Closed { channel, reason } => {
                    if let Some(flow) = self.flows.get_mut(channel) {
                        flow.closed = Some(reason.clone());
                    }
                }
                _ => {}
            }
            self.events.push(event);
        }
    }

    fn allocate(&mut self, destination: &str) -> Channel {
        let spec = FlowSpec::reliable();
        let channel = self
            .endpoint
            .allocate("client", destination, spec, WINDOW)
            .unwrap();
        self.flows.insert(channel, Flow::default());
        channel
    }

    fn flow(&mut self, channel: Channel) -> &mut Flow {
        self.flows.get_mut(&channel).unwrap()
    }

    /// Reads one record from the ring.
    fn read(&mut self) {
        let Some((header, payload)) = self.ring.pop_front() else {
            return;
        };
        let result = match self.endpoint.on_rx(header.encode(), payload.len() + 4) {
            Ok(Rx::Control) => self.endpoint.handle_control(&payload),
            Ok(Rx::Deliver { channel, more }) => {
                let flow = self.flows.get_mut(&channel).unwrap();
                flow.unread.push_back(record_cost(payload.len()));
                flow.unread_bytes += record_cost(payload.len());
                assert!(
                    flow.unread_bytes <= u64::from(WINDOW),
                    "the flow ring would be full"
                );
                flow.arriving.extend(payload);
                if !more {
                    let sdu = std::mem::take(&mut flow.arriving);
                    flow.received.push(sdu);
                }
                Ok(())
            }
            Ok(Rx::Discard) => Ok(()),
            Err(violation) => Err(violation),
        };
        if let Err(violation) = result {
            self.violation = Some(violation);
        }
        self.drain_events(true);
    }

    /// The application of a flow reads one piece.
    fn consume(&mut self, channel: Channel) {
        let Some(flow) = self.flows.get_mut(&channel).filter(|f| !f.is_stopped) else {
            return;
        };
        if let Some(cost) = flow.unread.pop_front() {
            flow.unread_bytes -= cost;
            flow.released += cost;
            self.endpoint.consumed(channel, flow.released);
        }
    }

    /// Puts one record into the peer's ring. Control messages go first.
    fn write(&mut self, peer: &mut VecDeque<(DataHeader, Vec<u8>)>, pick: usize) {
        let mut control = Vec::new();
        if self.endpoint.poll_control(&mut control) {
            assert!(control.len() <= CONTROL_BYTES_MAX);
            peer.push_back((
                DataHeader {
                    channel: Channel::CONTROL,
                    more: false,
                },
                control,
            ));
            return;
        }
        let sending: Vec<Channel> = self
            .flows
            .iter()
            .filter(|(_, f)| f.is_open && f.closed.is_none() && !f.to_send.is_empty())
            .map(|(c, _)| *c)
            .collect();
        if sending.is_empty() {
            return;
        }
        let channel = sending[pick % sending.len()];
        let flow = self.flows.get_mut(&channel).unwrap();
        let left = &flow.to_send[0][flow.sent_of_first..];
        let Some(bytes) = self.endpoint.next_piece_bytes(channel, left.len()) else {
            return;
        };
        let more = bytes < left.len();
        peer.push_back((DataHeader { channel, more }, left[..bytes].to_vec()));
        self.endpoint.on_tx(channel, bytes);
        flow.sent_of_first += bytes;
        if !more {
            flow.to_send.pop_front();
            flow.sent_of_first = 0;
        }
    }
}

struct Pair {
    host: Node,
    guest: Node,
    random: SplitMix,
    now: Instant,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut pair = Pair {
            host: Node::new(Side::Host, "host"),
            guest: Node::new(Side::Guest, "guest"),
            random: SplitMix::new(seed),
            now: Instant::from_nanos(1),
        };
        for node in [&mut pair.host, &mut pair.guest] {
            node.endpoint.register("server").unwrap();
        }
        pair
    }

    fn up(seed: u64) -> Pair {
        let mut pair = Pair::new(seed);
        pair.link_up();
        pair.drive(200);
        assert!(pair.host.endpoint.is_up() && pair.guest.endpoint.is_up());
        pair
    }

    fn link_up(&mut self) {
        for node in [&mut self.host, &mut self.guest] {
            node.ring.clear();
            node.endpoint.link_up(self.now);
            node.drain_events(true);
        }
    }

    /// Lets randomly chosen nodes take random actions, `steps` times.
    fn drive(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += Duration::from_micros(1);
            let pick = self.random.index(64);
            let (a, b) = match self.random.index(2) {
                0 => (&mut self.host, &mut self.guest),
                _ => (&mut self.guest, &mut self.host),
            };
            match self.random.index(3) {
                0 => a.write(&mut b.ring, pick),
                1 => a.read(),
                _ => {
                    let channels: Vec<Channel> = a.flows.keys().copied().collect();
                    if !channels.is_empty() {
                        a.consume(channels[pick % channels.len()]);
                    }
                }
            }
        }
        assert_eq!((self.host.violation, self.guest.violation), (None, None));
    }

    fn sdus(&mut self, count: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|_| {
                let len = match self.random.index(4) {
                    0 => 0,
                    1 => self.random.index(100),
                    _ => self.random.index(9000),
                };
                (0..len).map(|_| self.random.next_u64() as u8).collect()
            })
            .collect()
    }
}

#[test]
fn sdus_arrive_once_whole_and_in_order_in_any_interleaving() {
    for seed in 0..40 {
        let mut pair = Pair::up(seed);
        let channels: Vec<Channel> = (0..5)
            .map(|n| match n % 2 {
                0 => pair.host.allocate("server"),
                _ => pair.guest.allocate("server"),
            })
            .collect();
        pair.drive(500);
        let mut expected = Vec::new();
        for channel in &channels {
            let (down, up) = (pair.sdus(20), pair.sdus(20));
            pair.host.flow(*channel).to_send = down.clone().into();
            pair.guest.flow(*channel).to_send = up.clone().into();
            expected.push((*channel, down, up));
        }
        pair.drive(60_000);
        for (channel, down, up) in expected {
            assert!(
                pair.guest.flow(channel).received == down,
                "seed {seed} channel {channel}"
            );
            assert!(
                pair.host.flow(channel).received == up,
                "seed {seed} channel {channel}"
            );
        }
    }
}

#[test]
fn stopped_reader_stops_its_own_channel_only() {
    let mut pair = Pair::up(1);
    let stopped = pair.host.allocate("server");
    let running = pair.host.allocate("server");
    pair.drive(300);
    pair.guest.flow(stopped).is_stopped = true;
    for channel in [stopped, running] {
        pair.host.flow(channel).to_send = vec![vec![7; 500]; 100].into();
    }
    pair.drive(20_000);
    assert_eq!(pair.guest.flow(running).received.len(), 100);
    // A piece takes 512 bytes of ring space, so eight fit into the window.
    assert_eq!(pair.guest.flow(stopped).received.len(), 8);
    assert_eq!(pair.host.endpoint.tx_credit(stopped), 0);
    pair.guest.flow(stopped).is_stopped = false;
    pair.drive(20_000);
    assert_eq!(pair.guest.flow(stopped).received.len(), 100);
}

#[test]
fn both_sides_allocate_at_once_on_channels_of_their_own() {
    for seed in 0..20 {
        let mut pair = Pair::up(seed);
        let of_host: Vec<_> = (0..10)
            .map(|_| pair.host.allocate("server").number())
            .collect();
        let of_guest: Vec<_> = (0..10)
            .map(|_| pair.guest.allocate("server").number())
            .collect();
        assert_eq!(of_host, (1..=10).map(|n| 2 * n).collect::<Vec<_>>());
        assert_eq!(of_guest, (0..10).map(|n| 2 * n + 1).collect::<Vec<_>>());
        pair.drive(2000);
        for node in [&pair.host, &pair.guest] {
            assert_eq!(node.flows.values().filter(|f| f.is_open).count(), 20);
        }
    }
}

#[test]
fn channels_are_reused_without_a_trace_of_the_old_flow() {
    for seed in 0..30 {
        let mut pair = Pair::up(seed);
        for round in 0..20u8 {
            let channel = pair.host.allocate("server");
            pair.drive(300);
            for node in [&mut pair.host, &mut pair.guest] {
                node.flow(channel).to_send = vec![vec![round; 3000]; 5].into();
            }
            let steps = pair.random.index(300);
            pair.drive(steps);
            // One or both sides end the flow while data, credits and answers are in transit.
            let who = pair.random.index(3);
            for node in [&mut pair.host, &mut pair.guest]
                .into_iter()
                .skip(who % 2)
                .take(1 + who / 2)
            {
                node.endpoint.deallocate(channel, "done");
                node.flows.remove(&channel);
            }
            for node in [&pair.host, &pair.guest] {
                for sdu in node.flows.values().flat_map(|f| &f.received) {
                    assert!(sdu.iter().all(|byte| *byte == round), "seed {seed}");
                }
            }
            pair.drive(300);
            pair.host.flows.remove(&channel);
            pair.guest.flows.remove(&channel);
        }
        assert_eq!(pair.host.endpoint.table.in_use(), (0, 0));
        assert_eq!(pair.guest.endpoint.table.in_use(), (0, 0));
    }
}

#[test]
fn giving_up_a_request_crosses_any_answer_safely() {
    for seed in 0..60 {
        let mut pair = Pair::up(seed);
        for destination in ["server", "nobody"] {
            let channel = pair.guest.allocate(destination);
            let steps = pair.random.index(12);
            pair.drive(steps);
            pair.guest.endpoint.deallocate(channel, "changed my mind");
            pair.drive(300);
            pair.guest.flows.clear();
            pair.host.flows.clear();
        }
        assert_eq!(pair.guest.endpoint.table.in_use(), (0, 0), "seed {seed}");
        assert_eq!(pair.host.endpoint.table.in_use(), (0, 0), "seed {seed}");
    }
}

#[test]
fn unregistered_name_is_denied_by_name() {
    let mut pair = Pair::up(3);
    let channel = pair.host.allocate("nobody");
    pair.drive(200);
    assert_eq!(pair.host.flow(channel).denied, Some(Outcome::UnknownName));
    let text = pair.host.events.iter().find_map(|event| match event {
        Event::Denied { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(text.as_deref(), Some("`nobody` is not registered at guest"));
}

#[test]
fn registrations_follow_every_restart_of_the_link() {
    let mut pair = Pair::up(4);
    pair.guest.endpoint.register("late").unwrap();
    pair.drive(100);
    assert_eq!(
        pair.host.endpoint.peer_names().collect::<Vec<_>>(),
        ["late", "server"]
    );
    pair.guest.endpoint.unregister("server");
    pair.drive(100);
    assert!(!pair.host.endpoint.peer_has("server"));
    pair.link_up();
    pair.drive(200);
    assert_eq!(
        pair.host.endpoint.peer_names().collect::<Vec<_>>(),
        ["late"]
    );
}

#[test]
fn restart_of_the_link_ends_every_flow_with_the_reason() {
    let mut pair = Pair::up(5);
    let channel = pair.host.allocate("server");
    pair.drive(200);
    pair.host
        .endpoint
        .link_down("peer-restarted", "the peer's node restarted");
    pair.host.drain_events(true);
    let reason = CloseReason::LinkDown("the peer's node restarted".into());
    assert_eq!(pair.host.flow(channel).closed, Some(reason));
    assert!(matches!(
        pair.host.events.last(),
        Some(Event::Down {
            code: "peer-restarted",
            ..
        })
    ));
    assert_eq!(pair.host.endpoint.tx_credit(channel), 0);
    let error = pair
        .host
        .endpoint
        .allocate("a", "b", FlowSpec::default(), WINDOW)
        .unwrap_err();
    assert_eq!(error, RequestError::LinkDown);
}

#[test]
fn peer_that_sends_no_hello_times_out() {
    let mut pair = Pair::new(6);
    pair.host.endpoint.link_up(Instant::from_nanos(1000));
    let deadline = pair.host.endpoint.next_deadline().unwrap();
    assert_eq!(deadline, Instant::from_nanos(1000) + HELLO_TIMEOUT);
    assert_eq!(
        pair.host
            .endpoint
            .handle_timeout(deadline - Duration::from_nanos(1)),
        Ok(())
    );
    assert_eq!(
        pair.host.endpoint.handle_timeout(deadline),
        Err(Violation::HelloTimeout)
    );
    assert_eq!(pair.host.endpoint.next_deadline(), None);
}
