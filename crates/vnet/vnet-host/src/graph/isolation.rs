//! Tests that networks with the same inner addresses on the same hosts never see each other's
//! frames, with random topologies, simulated ports and a segment that floods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use carina_apps::mac_text::MacText;
use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Graph, Network, PortList, Ports,
};
use carina_random::SplitMix;
use carina_time::Instant;
use carina_vnet::division::{Placement, divide};
use carina_vnet::document::{Carrier, Document, Form};
use carina_vnet::host_part::{Far, HostPart, InterfacePart, VnetId};
use carina_vnet::layout::Layout;
use carina_wire::ether::Mac;
use carina_wire::inet::checksum;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::graph_of;
use crate::far_flow::Flows;
use crate::flow_port::FlowSocket;
use crate::names::{UNDERLAY_APP, port_app};
use crate::port_selection::PortSelection;
use crate::underlay::{Underlay, UnderlayPort};

type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port whose other side is the test.
#[derive(Clone, Debug, Default)]
struct Simulated {
    to_graph: Frames,
    from_graph: Frames,
}

struct SimulatedPort(Simulated, Pool);

impl PartialEq for Simulated {
    fn eq(&self, other: &Simulated) -> bool {
        Arc::ptr_eq(&self.to_graph, &other.to_graph)
    }
}

impl AppConfig for Simulated {
    const KIND: &'static str = "simulated";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    type App = SimulatedPort;

    fn build(&self, context: &mut AppContext<'_>) -> Result<SimulatedPort, AppError> {
        Ok(SimulatedPort(self.clone(), context.pool().clone()))
    }
}

impl FrameApp for SimulatedPort {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let waiting = &mut *self.0.to_graph.lock().unwrap();
        ports.fill(0, usize::MAX, || self.1.frame_of(&waiting.pop_front()?));
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let out = &mut *self.0.from_graph.lock().unwrap();
        ports.drain(0, |frame| out.push_back(frame.bytes().to_vec()));
    }
}

/// The running part of a network on a host.
struct Running {
    host: usize,
    network: Network,
    underlay: Simulated,
}

/// The end of a link: number of the network, of the link, and side.
type EndOf = (u8, u32, usize);

struct World {
    parts: Vec<Running>,
    nodes: BTreeMap<EndOf, (Simulated, InterfacePart)>,
    /// The other ends of flows between hosts, by what identifies a flow.
    flows: BTreeMap<(Ipv4Addr, Ipv4Addr, u32), OwnedFd>,
    now: u64,
}

const HOSTS: u64 = 4;

/// A random document; several networks use it, each with a placement of its own.
fn document(random: &mut SplitMix) -> Document {
    let nodes = 2 + random.below(4);
    let mut text = "[vnet]\nname = \"x\"\n[defaults]\nkind = \"namespace\"\n".to_owned();
    for node in 0..nodes {
        text.push_str(&format!("[node.n{node}]\n"));
    }
    for _ in 0..1 + random.below(6) {
        let one = random.below(nodes);
        let other = (one + 1 + random.below(nodes - 1)) % nodes;
        let carrier = ["gre", "vxlan", "ipip", "dif"][random.index(4)];
        text.push_str(&format!(
            "[[link]]\nends = [\"n{one}\", \"n{other}\"]\nrate = \"1Gbps\"\nas = \"{carrier}\"\n"
        ));
    }
    Document::read(&text, Form::Toml).unwrap()
}

/// The tags and addresses that the substrate has assigned.
#[derive(Default)]
struct Given {
    tags: BTreeMap<(u8, u64, u64), u32>,
    addresses: u32,
}

impl Given {
    /// Different pairs of hosts use the same tags, so that only addresses distinguish their
    /// tunnels.
    fn tag(&mut self, carrier: Carrier, [one, other]: [u64; 2]) -> u32 {
        let key = (carrier as u8, one.min(other), one.max(other));
        let tag = self.tags.entry(key).or_insert(0);
        *tag += 1;
        *tag
    }

    fn address(&mut self, carrier: Carrier, host: u64) -> Ipv4Addr {
        if carrier != Carrier::Ipip {
            return Ipv4Addr::new(192, 0, 2, host as u8);
        }
        self.addresses += 1;
        Ipv4Addr::from_bits(u32::from_be_bytes([172, 16, 0, 0]) + self.addresses)
    }
}

fn place(
    document: &Document,
    layout: &Layout,
    given: &mut Given,
    random: &mut SplitMix,
) -> Placement {
    let mut placement = Placement::default();
    let mut host_of = BTreeMap::new();
    for name in document.node.keys() {
        let host = random.below(HOSTS);
        host_of.insert(name.clone(), host);
        placement.hosts.insert(name.clone(), format!("h{host}"));
    }
    for (number, laid) in layout.links() {
        let carrier = document.link[laid.place].carrier;
        let hosts = [0, 1].map(|side: usize| host_of[&laid.ends[side].node]);
        placement.tags.insert(number, given.tag(carrier, hosts));
        let outer = hosts.map(|host| given.address(carrier, host));
        placement.outer.insert(number, outer);
    }
    placement
}

fn underlay(host: usize) -> UnderlayPort {
    UnderlayPort {
        wanted: Underlay::of("wire0"),
        mac: MacText(Mac([2, 0xff, 0, 0, 0, host as u8])),
        mtu: 1500,
    }
}

impl World {
    fn new(random: &mut SplitMix, pool: &Pool) -> World {
        let document = document(random);
        let layout = Layout::of(&document, &Layout::default());
        let mut given = Given::default();
        let mut world = World {
            parts: Vec::new(),
            nodes: BTreeMap::new(),
            flows: BTreeMap::new(),
            now: 0,
        };
        for vnet in 0..2 + random.below(2) as u8 {
            let placement = place(&document, &layout, &mut given, random);
            let id = (VnetId::new(u64::from(vnet)), 1);
            for (host, part) in divide(&document, id, &layout, &placement).unwrap() {
                let host: usize = host[1..].parse().unwrap();
                world.add(vnet, host, &part, pool);
            }
        }
        world
    }

    fn add(&mut self, vnet: u8, host: usize, part: &HostPart, pool: &Pool) {
        part.check().unwrap();
        let flows = self.flows_of(part);
        let (underlay, ports) = (underlay(host), PortSelection::default());
        let mut graph: Graph =
            graph_of(part, Some(&underlay), &flows, &ports, &BTreeSet::new()).unwrap();
        for link in &part.links {
            for (at, end) in link.ends().enumerate() {
                let (port, interface) = (Simulated::default(), part.interface(end).unwrap());
                graph.app(&port_app(link.number, at), port.clone());
                // The end with the lower address is side 0.
                let side = usize::from(interface.address.address() > interface.peer);
                let key = (vnet, link.number, side);
                assert!(self.nodes.insert(key, (port, interface.clone())).is_none());
            }
        }
        let wire = Simulated::default();
        if graph.apps().any(|(name, _)| name == UNDERLAY_APP) {
            graph.app(UNDERLAY_APP, wire.clone());
        }
        let counters = CounterFile::private().unwrap();
        let mut network = Network::new(pool.clone(), counters).unwrap();
        network.configure(&graph).unwrap();
        self.parts.push(Running {
            host,
            network,
            underlay: wire,
        });
    }

    /// A flow for each link to another host that has carrier `dif`, connected between the two
    /// hosts.
    fn flows_of(&mut self, part: &HostPart) -> Flows {
        let mut flows = Flows::new();
        for link in part
            .links
            .iter()
            .filter(|link| link.carrier == Carrier::Dif)
        {
            let Far::Host(far) = &link.far else { continue };
            let (low, high) = (far.local.min(far.remote), far.local.max(far.remote));
            let key = (low, high, link.tag);
            let end = self.flows.remove(&key).unwrap_or_else(|| {
                let (ours, theirs) = socketpair(
                    AddressFamily::UNIX,
                    SocketType::SEQPACKET,
                    SocketFlags::empty(),
                    None,
                )
                .unwrap();
                self.flows.insert(key, theirs);
                ours
            });
            flows.insert(link.number, FlowSocket::over(end));
        }
        flows
    }

    /// Runs all engines until no frame moves. What a host sends reaches all other hosts.
    fn settle(&mut self) {
        self.now += 100;
        // What is written into a flow is read only in the next round.
        let mut quiet = 0;
        while quiet < 3 {
            let mut is_moving = false;
            for part in &mut self.parts {
                // A frame passes all apps of its path, also those that run in the opposite order.
                for _ in 0..10 {
                    part.network.breathe(Instant::from_millis(self.now));
                }
            }
            for from in 0..self.parts.len() {
                let sent =
                    std::mem::take(&mut *self.parts[from].underlay.from_graph.lock().unwrap());
                is_moving |= !sent.is_empty();
                for to in &self.parts {
                    if to.host != self.parts[from].host {
                        to.underlay
                            .to_graph
                            .lock()
                            .unwrap()
                            .extend(sent.iter().cloned());
                    }
                }
            }
            quiet = if is_moving { 0 } else { quiet + 1 };
        }
    }

    /// Each end sends frames of its own, and frames that look like another network's tunnel.
    fn send(&self, random: &mut SplitMix) {
        for ((vnet, link, side), (port, interface)) in &self.nodes {
            let far = &self.nodes[&(*vnet, *link, 1 - side)].1;
            let mark = [*vnet, *link as u8, *side as u8];
            let mut to_graph = port.to_graph.lock().unwrap();
            to_graph.push_back(frame(
                interface,
                far.mac,
                253,
                &[&b"plain"[..], &mark].concat(),
            ));
            let key = 1 + random.below(8) as u8;
            let forged = [
                &[0x20, 0, 0x65, 0x58, 0, 0, 0, key][..],
                &[0; 40],
                b"forged",
                &mark,
            ];
            let mut forged = frame(interface, far.mac, 47, &forged.concat());
            let outer = [random.below(HOSTS), random.below(HOSTS)];
            forged[26..30].copy_from_slice(&[192, 0, 2, outer[0] as u8]);
            forged[30..34].copy_from_slice(&[192, 0, 2, outer[1] as u8]);
            seal(&mut forged);
            to_graph.push_back(forged);
            let to_all = frame(
                interface,
                Mac::BROADCAST,
                253,
                &[&b"to all"[..], &mark].concat(),
            );
            to_graph.push_back(to_all);
        }
    }

    /// Checks that every end has received exactly the frames of its link's other end, once each.
    fn check(&self, seed: u64) {
        for ((vnet, link, side), (port, _)) in &self.nodes {
            let from = [*vnet, *link as u8, 1 - *side as u8];
            let mut seen: Vec<Vec<u8>> = Vec::new();
            for frame in port.from_graph.lock().unwrap().drain(..) {
                let at = frame.len() - 3;
                assert_eq!(
                    frame[at..],
                    from,
                    "seed {seed}: network {vnet}, link {link}"
                );
                seen.push(frame[..at].to_vec());
            }
            let what = |word: &[u8]| seen.iter().filter(|frame| frame.ends_with(word)).count();
            let counts = [&b"plain"[..], b"forged", b"to all"].map(what);
            assert_eq!(
                counts,
                [1, 1, 1],
                "seed {seed}: network {vnet}, link {link}, {side}"
            );
            assert_eq!(seen.len(), 3, "seed {seed}");
        }
    }
}

/// An IPv4 frame from an interface.
fn frame(from: &InterfacePart, to: Mac, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&to.0[..], &from.mac.0, &[8, 0, 0x45, 0]].concat();
    bytes.extend((20 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(from.address.address().octets());
    bytes.extend(from.peer.octets());
    bytes.extend(payload);
    seal(&mut bytes);
    bytes
}

fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn networks_over_the_same_hosts_never_meet() {
    let cases = std::env::var("CARINA_CASES").ok();
    let cases: u64 = cases.map_or(2000, |cases| cases.parse().unwrap());
    let pool = Pool::new(PoolConfig::default()).unwrap();
    for seed in 0..cases {
        let mut random = SplitMix::new(seed);
        let mut world = World::new(&mut random, &pool);
        // Next hops are resolved by ARP first.
        world.settle();
        world.send(&mut random);
        world.settle();
        world.check(seed);
    }
}
