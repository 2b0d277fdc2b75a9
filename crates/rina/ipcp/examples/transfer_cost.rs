//! Measures the cost of data transfer per PDU of 1400 bytes: for sending, relaying and receiving.
//!
//! `cargo run --release -p carina-ipcp --example transfer_cost [NUMBER OF FLOWS]`
//!
//! Payloads are handles to shared bytes with a small buffer for headers, like packets of the
//! engine; only headers are copied.
#![allow(clippy::disallowed_methods, reason = "measures what the machine takes")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant as Clock;

use carina_ipcp::api::{FlowKey, N1Port, N1Properties};
use carina_ipcp::config::{DifConfig, QosCube, WindowConfig};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, Route};
use carina_ipcp::{Catalogue, DataPath, PolicySpec};
use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::{Address, CepId};

const BURST: usize = 64;
const BURSTS: usize = 20_000;
const SDU: usize = 1400;

thread_local! {
    #[expect(clippy::vec_box, reason = "what is moved in and out is the box")]
    static HEADS: RefCell<Vec<Box<Head>>> = const { RefCell::new(Vec::new()) };
}

/// Buffer for headers in front of the payload.
struct Head {
    bytes: [u8; 128],
    start: usize,
}

/// A payload: headers, followed by shared bytes.
struct Handle {
    head: Option<Box<Head>>,
    body: Rc<[u8]>,
    start: usize,
    end: usize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(head) = self.head.take() {
            HEADS.with_borrow_mut(|heads| heads.push(head));
        }
    }
}

impl Handle {
    fn of(body: &Rc<[u8]>) -> Handle {
        Handle {
            head: None,
            body: body.clone(),
            start: 0,
            end: body.len(),
        }
    }

    fn head(&self) -> &[u8] {
        self.head
            .as_ref()
            .map_or(&[], |head| &head.bytes[head.start..])
    }
}

impl Payload for Handle {
    #[inline]
    fn len(&self) -> usize {
        self.head().len() + self.end - self.start
    }

    #[inline]
    fn copy_prefix(&self, to: &mut [u8]) -> usize {
        let count = self.len().min(to.len());
        let head = self.head();
        let front = head.len().min(count);
        to[..front].copy_from_slice(&head[..front]);
        to[front..count].copy_from_slice(&self.body[self.start..self.start + count - front]);
        count
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        let front = self.head().len().min(count);
        if let Some(head) = &mut self.head {
            head.start += front;
        }
        self.start = (self.start + count - front).min(self.end);
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        let front = self.head().len();
        assert!(front <= len, "only bodies are cut here");
        self.end = self.end.min(self.start + len - front);
    }

    #[inline]
    fn prepend(&mut self, header: &[u8]) -> bool {
        let head = self.head.get_or_insert_with(|| {
            let mut head = HEADS.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
                Box::new(Head {
                    bytes: [0; 128],
                    start: 0,
                })
            });
            head.start = 128;
            head
        });
        let Some(start) = head.start.checked_sub(header.len()) else {
            return false;
        };
        head.bytes[start..head.start].copy_from_slice(header);
        head.start = start;
        true
    }

    fn share(&mut self) -> Option<Handle> {
        let mut copy = Handle {
            head: None,
            body: self.body.clone(),
            start: self.start,
            end: self.end,
        };
        let head = self.head().to_vec();
        (head.is_empty() || copy.prepend(&head)).then_some(copy)
    }

    fn keep(&mut self) -> bool {
        true
    }

    fn append_to(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.head());
        to.extend_from_slice(&self.body[self.start..self.end]);
    }

    fn from_vec(bytes: Vec<u8>) -> Option<Handle> {
        Some(Handle::of(&bytes.into()))
    }
}

fn cube(is_reliable: bool) -> QosCube {
    QosCube {
        id: if is_reliable { 3 } else { 1 },
        name: "measured".into(),
        in_order: is_reliable,
        retransmission: is_reliable,
        window: is_reliable.then(WindowConfig::default),
        rate: None,
        max_sdu_gap: None,
        partial_delivery: false,
        priority: 1,
        weight: 1,
        ecn: false,
        initial_a_ms: 20,
        retransmit_ms: 30_000,
        max_delay_us: 0,
        max_loss: 10_000,
    }
}

/// Three members in a line, with addresses 1, 2 and 3.
fn line() -> [DataPath<Handle>; 3] {
    let none = PolicySpec {
        name: "none".into(),
        ..PolicySpec::default()
    };
    let config = DifConfig {
        max_pdu: 1500,
        cubes: vec![cube(false), cube(true)],
        policies: [("congestion-control".into(), none)].into(),
        ..DifConfig::default()
    };
    let props = N1Properties {
        dif: "medium".into(),
        remote: String::new(),
        sdu_max: 1500,
        is_reliable: false,
        is_exposed: false,
        is_initiator: true,
        cost: 1,
    };
    [1u64, 2, 3].map(|address| {
        let mut member = DataPath::new(Catalogue::standard(), address);
        member
            .configure(Instant::ZERO, &config)
            .expect("a good configuration");
        member.set_address(Address(address));
        for (port, neighbour) in [(0, address - 1), (1, address + 1)] {
            member.add_n1(N1Port(port), &props);
            member.set_neighbour(Instant::ZERO, Address(neighbour), &[N1Port(port)]);
        }
        let next = |dst: u64| {
            Address(if dst > address {
                address + 1
            } else {
                address - 1
            })
        };
        let routes: Vec<_> = (1..=3)
            .filter(|dst| *dst != address)
            .map(|dst| Route {
                dst: Address(dst),
                next: vec![next(dst)],
                alternates: vec![],
            })
            .collect();
        member.set_forwarding(&routes);
        member
    })
}

fn open(member: &mut DataPath<Handle>, key: u32, is_reliable: bool) -> CepId {
    let open = Open {
        owner: Owner::Flow(FlowKey(key)),
        cube: cube(is_reliable),
        msg_boundaries: true,
        pinned: None,
    };
    member.open(Instant::ZERO, open).expect("a connection")
}

/// Takes all PDUs that a member sends through its N-1 flows.
fn drain(member: &mut DataPath<Handle>, now: Instant, to: &mut Vec<Handle>) {
    while let Some(n1) = member.poll_n1() {
        while member.peek_transmit(n1).is_some() {
            to.extend(member.take_transmit(now, n1));
        }
    }
}

fn give(member: &mut DataPath<Handle>, now: Instant, port: u32, from: &mut Vec<Handle>) {
    for pdu in from.drain(..) {
        member.on_pdu(now, N1Port(port), pdu);
    }
    member.end_of_burst(now);
}

/// Nanoseconds per PDU for sending, relaying and receiving, and for the acknowledgements at all
/// three.
fn measure(is_reliable: bool, flows: u32) -> [f64; 4] {
    let mut members = line();
    for key in 0..flows {
        let ceps = [0, 2].map(|index: usize| open(&mut members[index], key, is_reliable));
        members[0].connect(Instant::ZERO, ceps[0], Address(3), ceps[1]);
        members[2].connect(Instant::ZERO, ceps[1], Address(1), ceps[0]);
    }
    let [first, relay, last] = &mut members;
    let body: Rc<[u8]> = vec![7; SDU].into();
    let mut pdus = Vec::with_capacity(2 * BURST);
    let mut spent = [const { Vec::new() }; 4];
    let mut delivered = 0usize;
    for round in 0..BURSTS {
        let now = Instant::from_nanos(round as u64 * 100_000 + 1);
        let start = Clock::now();
        // Each writer writes all its SDUs at once.
        let writers = BURST.min(flows as usize);
        for index in 0..writers {
            let key = FlowKey((round * BURST + index) as u32 % flows);
            let count = BURST / writers + usize::from(index < BURST % writers);
            let sdus = (0..count).map(|_| (Handle::of(&body), false));
            first.on_sdus(now, key, sdus);
        }
        first.end_of_burst(now);
        drain(first, now, &mut pdus);
        first.release_burst();
        let sent = Clock::now();
        give(relay, now, 0, &mut pdus);
        drain(relay, now, &mut pdus);
        relay.release_burst();
        let relayed = Clock::now();
        give(last, now, 0, &mut pdus);
        while let Some(delivery) = last.poll_deliver() {
            delivered += 1;
            drop(delivery);
        }
        let received = Clock::now();
        drain(last, now, &mut pdus);
        give(relay, now, 1, &mut pdus);
        drain(relay, now, &mut pdus);
        give(first, now, 1, &mut pdus);
        for member in [&mut *first, relay, last] {
            if member.poll_timeout().is_some_and(|due| due <= now) {
                member.handle_timeout(now);
            }
        }
        let over = Clock::now();
        let steps = [start, sent, relayed, received, over];
        for (spent, pair) in spent.iter_mut().zip(steps.windows(2)) {
            spent.push((pair[1] - pair[0]).as_nanos());
        }
    }
    assert_eq!(delivered, BURST * BURSTS, "everything arrives");
    // Takes the median, so that bursts that the machine interrupted do not count.
    spent.map(|mut spent| {
        spent.sort_unstable();
        spent[spent.len() / 2] as f64 / BURST as f64
    })
}

fn main() {
    println!("ns per PDU of {SDU} bytes, bursts of {BURST}");
    println!("flows  kind           send  relay  receive  acknowledge");
    let only = std::env::args().nth(1).and_then(|count| count.parse().ok());
    for flows in [1, 100, 10_000] {
        if only.is_some_and(|only: u32| only != flows) {
            continue;
        }
        for (is_reliable, kind) in [(false, "unreliable"), (true, "reliable")] {
            let [send, relay, receive, acks] = measure(is_reliable, flows);
            println!("{flows:>5}  {kind:<11} {send:>7.0} {relay:>6.0} {receive:>8.0} {acks:>12.0}");
        }
    }
    let sizes = DataPath::<Handle>::flow_bytes();
    println!("bytes per flow without queued SDUs: {sizes}");
}
