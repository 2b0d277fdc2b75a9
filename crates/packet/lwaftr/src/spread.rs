//! **lwaftr_spread**: distributes the frames of one side over the workers of an AFTR.
//!
//! - inputs: `input`
//! - outputs: any names; in alphabetical order they lead to worker 0, 1 and so on. Their number
//!   must be that of the workers
//! - configuration: the side, and the queue of each worker
//! - counters: `drop_no_worker`, frames that arrived while no output was connected
//! - cost: a hash over 8 or 32 bytes
//!
//! A worker gets the frames for the MAC address and the VLAN of its queue. Among workers with the
//! same MAC address and VLAN, only the source and destination address of the packet decide, so that
//!
//! - all fragments of a packet reach one worker: of IPv4, of IPv6, and of IPv4 within IPv6, even if
//!   only some of these IPv6 packets are fragmented again;
//! - the packets of a flow stay in order.
//!
//! Every worker has the whole binding table, so each can hairpin packets from one softwire to
//! another. ARP and neighbour discovery go to the first worker that has the address in question, or
//! that uses the next hop in question; it passes on what it learns to the other workers
//! ([`crate::exchange`]).

use carina_apps::flow_hash::{address_hash, choice};
use carina_frame::Frame;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use carina_wire::ether::{ETHERTYPE_ARP, TPID_CUSTOMER};
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_ICMP6};
use carina_wire::ipv6::Upper;

use crate::config::{NextHopAddress, Queue};

/// The side of an AFTR from which frames arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The IPv4 Internet.
    External,
    /// The IPv6 access network.
    Internal,
    /// Both sides share one Ethernet segment: frames of IPv4 and ARP are external, all others
    /// internal.
    Stick,
}

/// The configuration of the app `lwaftr_spread`, which distributes the frames of one side over the
/// workers of an AFTR.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadConfig {
    /// The side of the AFTR whose frames the app distributes.
    pub side: Side,
    /// The queue of each worker, by the worker's number from 0.
    pub queues: Vec<Queue>,
}

/// Decides which worker gets a frame.
#[derive(Clone, Debug)]
pub struct Spread {
    side: Side,
    external: Vec<Member>,
    internal: Vec<Member>,
    /// Whether all workers have the same addresses, so that any of them can handle any frame.
    is_uniform: bool,
}

/// The addresses of one worker on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    mac: [u8; 6],
    vlan: Option<u16>,
    /// Own IP address; zeros follow an IPv4 address.
    ip: [u8; 16],
    /// IP address of the next hop, in the same form; `None` if its MAC address is configured.
    next: Option<[u8; 16]>,
}

/// The IP addresses that an ARP or neighbour discovery message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    /// The address of the station that should receive the message.
    own: [u8; 16],
    /// The address whose MAC address the message gives.
    given: [u8; 16],
}

/// The fields of a frame that decide about its worker.
struct Head<'a> {
    to: [u8; 6],
    vlan: Option<u16>,
    ethertype: u16,
    packet: &'a [u8],
}

impl Spread {
    /// Distributes over workers with the queues of `config`.
    #[must_use]
    pub fn new(config: &SpreadConfig) -> Spread {
        let queues = &config.queues;
        let external: Vec<_> = queues
            .iter()
            .map(|queue| Member {
                mac: queue.external.mac.0,
                vlan: queue.external.vlan,
                ip: of_ipv4(&queue.external.ip.octets()),
                next: match queue.external.next_hop {
                    NextHopAddress::Ip(ip) => Some(of_ipv4(&ip.octets())),
                    NextHopAddress::Mac(_) => None,
                },
            })
            .collect();
        let internal: Vec<_> = queues
            .iter()
            .map(|queue| Member {
                mac: queue.internal.mac.0,
                vlan: queue.internal.vlan,
                ip: queue.internal.ip.octets(),
                next: match queue.internal.next_hop {
                    NextHopAddress::Ip(ip) => Some(ip.octets()),
                    NextHopAddress::Mac(_) => None,
                },
            })
            .collect();
        let is_same = |members: &[Member]| members.windows(2).all(|pair| pair[0] == pair[1]);
        let is_uniform = is_same(&external) && is_same(&internal);
        Spread {
            side: config.side,
            external,
            internal,
            is_uniform,
        }
    }

    /// The number of the worker that should get a frame, from 0; also 0 for a frame that is for no
    /// worker.
    #[must_use]
    pub fn worker_of(&self, frame: &Frame) -> usize {
        let Some(head) = Head::of(frame) else {
            return 0;
        };
        let asked = head.asked();
        let hash = match asked {
            Some(_) => 0,
            None => address_hash(head.packet).unwrap_or(0),
        };
        if self.is_uniform {
            return choice(hash, self.external.len());
        }
        let is_external = match self.side {
            Side::External => true,
            Side::Internal => false,
            Side::Stick => matches!(head.ethertype, ETHERTYPE_IPV4 | ETHERTYPE_ARP),
        };
        let members = if is_external {
            &self.external
        } else {
            &self.internal
        };
        self.member(members, &head, asked, hash)
    }

    /// Chooses a worker among those whose addresses match the frame best.
    fn member(
        &self,
        members: &[Member],
        head: &Head<'_>,
        asked: Option<Asked>,
        hash: u32,
    ) -> usize {
        let ip = asked.map(|asked| asked.own).or_else(|| head.destination());
        let given = asked.map(|asked| asked.given);
        let is_of_vlan = |member: &Member| member.vlan == head.vlan;
        let is_of_mac = |member: &Member| member.mac == head.to || head.to[0] & 1 != 0;
        let is_of_ip = |member: &Member| Some(member.ip) == ip;
        let is_of_next = |member: &Member| member.next.is_some() && member.next == given;
        // The strictest test that some worker passes decides.
        let tests: [&dyn Fn(&Member) -> bool; 4] = [
            &|member| is_of_vlan(member) && is_of_mac(member) && is_of_ip(member),
            &|member| is_of_vlan(member) && is_of_mac(member) && is_of_next(member),
            &|member| is_of_vlan(member) && is_of_mac(member),
            &is_of_vlan,
        ];
        for test in tests {
            let count = members.iter().filter(|member| test(member)).count();
            let mut found = members
                .iter()
                .enumerate()
                .filter(|(_, member)| test(member));
            if let Some((worker, _)) = found.nth(choice(hash, count)) {
                return worker;
            }
        }
        0
    }
}

fn of_ipv4(ip: &[u8; 4]) -> [u8; 16] {
    let mut long = [0; 16];
    long[..4].copy_from_slice(ip);
    long
}

impl<'a> Head<'a> {
    /// Reads the fields of a frame, whose VLAN tag may be in its bytes or in its metadata.
    #[inline]
    fn of(frame: &'a Frame) -> Option<Head<'a>> {
        let beside = frame.vlan().map(|control| control & VLAN_MASK);
        let bytes = frame.bytes();
        let to = *bytes.first_chunk::<6>()?;
        let word = |at: usize| {
            let word = bytes.get(at..at + 2)?;
            Some(u16::from_be_bytes([word[0], word[1]]))
        };
        let (vlan, at) = match (beside, word(12)?) {
            (None, TPID_CUSTOMER) => (Some(word(14)? & VLAN_MASK), 18),
            (beside, _) => (beside, 14),
        };
        Some(Head {
            to,
            vlan,
            ethertype: word(at - 2)?,
            packet: bytes.get(at..)?,
        })
    }

    /// The addresses of an ARP or neighbour discovery message; `None` for any other packet.
    #[inline]
    fn asked(&self) -> Option<Asked> {
        match self.ethertype {
            ETHERTYPE_ARP => {
                let address = |at: usize| {
                    let address = self
                        .packet
                        .get(at..at + 4)
                        .and_then(|packet| packet.try_into().ok());
                    of_ipv4(&address.unwrap_or_default())
                };
                Some(Asked {
                    own: address(24),
                    given: address(14),
                })
            }
            ETHERTYPE_IPV6 => self.asked6(),
            _ => None,
        }
    }

    fn asked6(&self) -> Option<Asked> {
        let upper = Upper::seen(self.packet)?;
        if upper.protocol != PROTOCOL_ICMP6 {
            return None;
        }
        let message = self.packet.get(upper.start..upper.end)?;
        let (source, destination) = (self.packet.get(8..24)?, self.packet.get(24..40)?);
        let target = message.get(8..24);
        let (own, given) = match message.first()? {
            // A solicitation is for its target; an advertisement is for its destination.
            135 => (target?, source),
            136 => (destination, target?),
            _ => return None,
        };
        Some(Asked {
            own: own.try_into().ok()?,
            given: given.try_into().ok()?,
        })
    }

    /// The destination IP address of the packet.
    fn destination(&self) -> Option<[u8; 16]> {
        match self.ethertype {
            ETHERTYPE_IPV4 => {
                let ip = self.packet.get(16..20)?.try_into().ok()?;
                Some(of_ipv4(&ip))
            }
            ETHERTYPE_IPV6 => self.packet.get(24..40)?.try_into().ok(),
            _ => None,
        }
    }
}

/// The VLAN identifier within a tag; the bits above are priority and drop eligibility.
const VLAN_MASK: u16 = 0x0fff;

/// The running app `lwaftr_spread`: distributes the frames of one side over the workers of an AFTR.
pub struct SpreadApp {
    spread: Spread,
    no_worker: Counter,
}

impl AppConfig for SpreadConfig {
    const KIND: &'static str = "lwaftr_spread";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;

    type App = SpreadApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<SpreadApp, AppError> {
        Ok(SpreadApp {
            spread: Spread::new(self),
            no_worker: context.counter("drop_no_worker"),
        })
    }

    fn can_apply(&self, _old: &SpreadConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut SpreadApp) {
        app.spread = Spread::new(self);
    }
}

impl FrameApp for SpreadApp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let outputs = ports.outputs();
        if outputs == 0 {
            self.no_worker.add(ports.waiting(0) as u64);
            return ports.drain(0, drop);
        }
        ports.each(0, |frame, ports| {
            let worker = self.spread.worker_of(&frame);
            ports.transmit(worker.min(outputs - 1), frame);
        });
    }
}
