//! Members joined by N-1 flows without delay; the test moves time and PDUs.

use std::collections::{BTreeMap, VecDeque};

use carina_ipcp::api::{FlowKey, N1Port, N1Properties};
use carina_ipcp::config::{DifConfig, QosCube, RateConfig, WindowConfig};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, Route, TransferEvent};
use carina_ipcp::{Catalogue, DataPath, PolicySpec};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::{Address, CepId, Dialect};

pub(super) const MS: Duration = Duration::from_millis(1);

/// A cube that promises nothing.
pub(super) fn cube(id: u16, name: &str) -> QosCube {
    QosCube {
        id,
        name: name.into(),
        in_order: false,
        retransmission: false,
        window: None,
        rate: None::<RateConfig>,
        max_sdu_gap: None,
        partial_delivery: false,
        priority: 2,
        weight: 1,
        ecn: false,
        initial_a_ms: 20,
        retransmit_ms: 5_000,
        max_delay_us: 0,
        max_loss: 10_000,
    }
}

/// The five kinds of cube that a DIF usually has.
pub(super) fn cubes() -> Vec<QosCube> {
    let window = Some(WindowConfig {
        credit_max: 256,
        initial_credit: 64,
    });
    vec![
        cube(1, "unreliable"),
        QosCube {
            in_order: true,
            window,
            weight: 3,
            ..cube(2, "unreliable-flow-control")
        },
        QosCube {
            in_order: true,
            retransmission: true,
            window,
            ecn: true,
            priority: 1,
            ..cube(3, "reliable")
        },
        QosCube {
            retransmission: true,
            window,
            ..cube(4, "reliable-unordered")
        },
        QosCube {
            priority: 0,
            ..cube(5, "low-delay")
        },
    ]
}

/// A DIF with PDUs of 1500 bytes.
pub(super) fn config() -> DifConfig {
    DifConfig {
        max_pdu: 1500,
        cubes: cubes(),
        ..DifConfig::default()
    }
}

/// Makes the specification of a policy.
pub(super) fn policy(name: &str, params: &[(&str, &str)]) -> PolicySpec {
    PolicySpec {
        name: name.into(),
        params: params
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
    }
}

pub(super) fn props() -> N1Properties {
    N1Properties {
        dif: "medium".into(),
        remote: "peer".into(),
        sdu_max: 1500,
        is_reliable: false,
        is_exposed: false,
        is_initiator: true,
        cost: 1,
    }
}

/// Members and the wires between them.
pub(super) struct Net {
    pub now: Instant,
    pub members: Vec<DataPath<Bytes>>,
    /// For each member and N-1 flow, the other end of the wire.
    pub wires: BTreeMap<(usize, u32), (usize, u32)>,
    /// N-1 flows that take no PDUs.
    pub stopped: Vec<(usize, u32)>,
    /// SDUs that applications have read, by member and flow.
    pub read: BTreeMap<(usize, u32), Vec<Vec<u8>>>,
    partial: BTreeMap<(usize, u32), Vec<u8>>,
    pub events: Vec<(usize, TransferEvent)>,
    /// Called with the sending member, the PDU and its number. May change the PDU; returns true to
    /// lose it.
    #[expect(clippy::type_complexity, reason = "one closure")]
    pub loses: Option<Box<dyn FnMut(usize, &mut Vec<u8>, u64) -> bool>>,
    moved: u64,
}

impl Net {
    /// Members with addresses 1, 2 and so on.
    pub(super) fn new(count: usize, config: &DifConfig) -> Net {
        Net::of_dialect(Dialect::Native, count, config)
    }

    pub(super) fn of_dialect(dialect: Dialect, count: usize, config: &DifConfig) -> Net {
        let members = (0..count)
            .map(|index| {
                let seed = 7 + index as u64;
                let mut member = DataPath::of_dialect(Catalogue::standard(), dialect, seed);
                member
                    .configure(Instant::ZERO, config)
                    .expect("a good configuration");
                member.set_address(Address(index as u64 + 1));
                member
            })
            .collect();
        Net {
            now: Instant::from_millis(1),
            members,
            wires: BTreeMap::new(),
            stopped: Vec::new(),
            read: BTreeMap::new(),
            partial: BTreeMap::new(),
            events: Vec::new(),
            loses: None,
            moved: 0,
        }
    }

    /// Joins two members; they become neighbours through all their wires.
    pub(super) fn wire(&mut self, a: (usize, u32), b: (usize, u32)) {
        self.wire_with(a, b, &props());
    }

    pub(super) fn wire_with(&mut self, a: (usize, u32), b: (usize, u32), props: &N1Properties) {
        for (this, other) in [(a, b), (b, a)] {
            self.wires.insert(this, other);
            self.members[this.0].add_n1(N1Port(this.1), props);
        }
        for (this, other) in [(a, b), (b, a)] {
            let n1s: Vec<N1Port> = self
                .wires
                .iter()
                .filter(|(from, to)| from.0 == this.0 && to.0 == other.0)
                .map(|(from, _)| N1Port(from.1))
                .collect();
            let now = self.now;
            self.members[this.0].set_neighbour(now, Address(other.0 as u64 + 1), &n1s);
        }
    }

    /// Removes a wire: its N-1 flow ends at both members.
    pub(super) fn cut(&mut self, a: (usize, u32)) {
        let b = self.wires.remove(&a).expect("a wire");
        self.wires.remove(&b);
        for (member, port) in [a, b] {
            self.members[member].remove_n1(self.now, N1Port(port));
        }
    }

    pub(super) fn route(&mut self, member: usize, routes: &[(u64, &[u64], &[u64])]) {
        let table: Vec<Route> = routes
            .iter()
            .map(|(dst, next, alternates)| Route {
                dst: Address(*dst),
                next: next.iter().copied().map(Address).collect(),
                alternates: alternates.iter().copied().map(Address).collect(),
            })
            .collect();
        self.members[member].set_forwarding(&table);
    }

    /// A flow with the same key at both ends.
    pub(super) fn flow(&mut self, a: usize, b: usize, key: u32, cube: &QosCube) -> (CepId, CepId) {
        self.flow_between((a, key), (b, key), cube)
    }

    pub(super) fn flow_between(
        &mut self,
        a: (usize, u32),
        b: (usize, u32),
        cube: &QosCube,
    ) -> (CepId, CepId) {
        let ceps = [a, b].map(|(member, key)| self.open(member, key, cube));
        let now = self.now;
        self.members[a.0].connect(now, ceps[0], Address(b.0 as u64 + 1), ceps[1]);
        self.members[b.0].connect(now, ceps[1], Address(a.0 as u64 + 1), ceps[0]);
        (ceps[0], ceps[1])
    }

    pub(super) fn open(&mut self, member: usize, key: u32, cube: &QosCube) -> CepId {
        let open = Open {
            owner: Owner::Flow(FlowKey(key)),
            cube: cube.clone(),
            msg_boundaries: true,
            pinned: None,
        };
        let now = self.now;
        self.members[member].open(now, open).expect("a connection")
    }

    pub(super) fn write(&mut self, member: usize, key: u32, sdu: &[u8]) {
        let now = self.now;
        self.members[member].on_sdu(now, FlowKey(key), Bytes::from(sdu.to_vec()), false);
    }

    /// Moves PDUs until none moves at the present time.
    pub(super) fn run_until_quiet(&mut self) {
        loop {
            let mut arrived = VecDeque::new();
            for index in 0..self.members.len() {
                self.breathe(index, &mut arrived);
            }
            if arrived.is_empty() {
                break;
            }
            for ((member, port), pdu) in arrived {
                self.members[member].on_pdu(self.now, N1Port(port), pdu);
            }
        }
    }

    fn breathe(&mut self, index: usize, arrived: &mut VecDeque<((usize, u32), Bytes)>) {
        let now = self.now;
        let member = &mut self.members[index];
        member.end_of_burst(now);
        while let Some(n1) = member.poll_n1() {
            if self.stopped.contains(&(index, n1.0)) {
                member.block_n1(n1);
                continue;
            }
            let expected = member.peek_transmit(n1);
            let Some(pdu) = member.take_transmit(now, n1) else {
                continue;
            };
            let mut bytes = pdu.as_slice().to_vec();
            assert_eq!(expected, Some(bytes.len()));
            self.moved += 1;
            let is_lost = match &mut self.loses {
                Some(loses) => loses(index, &mut bytes, self.moved),
                None => false,
            };
            if let Some(to) = self.wires.get(&(index, n1.0))
                && !is_lost
            {
                arrived.push_back((*to, Bytes::from(bytes)));
            }
        }
        while let Some(delivery) = member.poll_deliver() {
            let key = (index, delivery.flow.0);
            let sdu = self.partial.entry(key).or_default();
            sdu.extend_from_slice(delivery.sdu.as_slice());
            if !delivery.more {
                let sdu = self.partial.remove(&key).unwrap_or_default();
                self.read.entry(key).or_default().push(sdu);
            }
        }
        member.release_burst();
        while let Some(event) = DataTransfer::poll(member) {
            self.events.push((index, event));
        }
    }

    /// Lets a stopped N-1 flow take PDUs again.
    pub(super) fn resume(&mut self, member: usize, port: u32) {
        self.stopped.retain(|stopped| *stopped != (member, port));
        self.members[member].unblock_n1(N1Port(port));
    }

    /// Advances the time and runs timers up to `until`.
    pub(super) fn run_until(&mut self, until: Instant) {
        self.run_until_quiet();
        loop {
            let due = self.members.iter().filter_map(DataPath::poll_timeout).min();
            let Some(due) = due.filter(|due| *due <= until) else {
                break;
            };
            self.now = self.now.max(due);
            for member in &mut self.members {
                member.handle_timeout(self.now);
            }
            self.run_until_quiet();
        }
        self.now = until;
    }

    pub(super) fn take_read(&mut self, member: usize, key: u32) -> Vec<Vec<u8>> {
        self.read.remove(&(member, key)).unwrap_or_default()
    }

    pub(super) fn dropped(&self, member: usize, reason: carina_ipcp::DropReason) -> u64 {
        self.members[member].counters().dropped(reason)
    }

    /// Number of notices of a member that contain these words.
    pub(super) fn notices(&self, member: usize, words: &str) -> usize {
        let is_it = |(of, event): &&(usize, TransferEvent)| {
            *of == member && matches!(event, TransferEvent::Notice { text } if text.contains(words))
        };
        self.events.iter().filter(is_it).count()
    }
}

/// Content that identifies an SDU by its number.
pub(super) fn sdu(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (number * 31 + i * 7 + (i >> 8)) as u8)
        .collect()
}
