//! Conditions on addresses and ports, with their tests in libpcap's order.

use crate::condition::{Id, field};
use crate::error::FilterError;
use crate::names::Protocol;
use crate::primitives::{IPV4, IPV6};
use crate::program::{Compare, Field, Size};
use crate::qualifiers::{Direction, Kind, Qualifiers};
use crate::reader::Parser;

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    low: u16,
    high: u16,
}

impl Ports {
    pub(crate) fn new(one: u16, other: u16) -> Ports {
        Ports {
            low: one.min(other),
            high: one.max(other),
        }
    }
}

/// The transport protocols to whose ports a condition applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transports {
    /// TCP, UDP and SCTP.
    All,
    One(u32),
}

impl Transports {
    /// The protocol numbers, in the order of libpcap's tests.
    fn numbers(self) -> Vec<u32> {
        match self {
            Transports::All => vec![132, 6, 17],
            Transports::One(number) => vec![number],
        }
    }
}

impl Parser<'_> {
    pub(crate) fn ether_host(&mut self, mac: [u8; 6], direction: Direction) -> Id {
        let [a, b, c, d, e, f] = mac;
        let first = u32::from(u16::from_be_bytes([a, b]));
        let last = u32::from_be_bytes([c, d, e, f]);
        self.directed(direction, [6, 0], &mut |parser, offset| {
            let last = parser.conditions.equal(field(offset + 2, Size::Word), last);
            let first = parser.conditions.equal(field(offset, Size::Half), first);
            parser.conditions.and(last, first)
        })
    }

    pub(crate) fn host4(
        &mut self,
        address: u32,
        mask: u32,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<Id, FilterError> {
        const ARP: u32 = 0x0806;
        const RARP: u32 = 0x8035;
        // Offsets of the source and the destination address.
        const IP_AT: [u32; 2] = [12, 16];
        const ARP_AT: [u32; 2] = [14, 24];
        let direction = qualifiers.direction();
        let of = |parser: &mut Self, ethertype, at: [u32; 2]| {
            parser.directed(direction, at, &mut |parser, offset| {
                let link = parser.ether_type(ethertype);
                let place = parser.layout.network(offset, Size::Word);
                let same = parser.conditions.test(place, mask, Compare::Equal, address);
                parser.conditions.and(link, same)
            })
        };
        Ok(match qualifiers.protocol {
            None => {
                let (ip, arp) = (of(self, IPV4, IP_AT), of(self, ARP, ARP_AT));
                let rarp = of(self, RARP, ARP_AT);
                let both = self.conditions.or(ip, arp);
                self.conditions.or(both, rarp)
            }
            Some(Protocol::Ip) => of(self, IPV4, IP_AT),
            Some(Protocol::Arp) => of(self, ARP, ARP_AT),
            Some(Protocol::Rarp) => of(self, RARP, ARP_AT),
            Some(other) => return self.no_address(other, qualifiers, "IPv4", place),
        })
    }

    pub(crate) fn host6(
        &mut self,
        address: u128,
        mask: u128,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<Id, FilterError> {
        if let Some(other) = qualifiers.protocol
            && other != Protocol::Ip6
        {
            return self.no_address(other, qualifiers, "IPv6", place);
        }
        Ok(
            self.directed(qualifiers.direction(), [8, 24], &mut |parser, offset| {
                let mut all = parser.ether_type(IPV6);
                for word in 0..4 {
                    let part = |of: u128| (of >> (96 - 32 * word)) as u32;
                    let place = parser.layout.network(offset + 4 * word, Size::Word);
                    let (mask, value) = (part(mask), part(address));
                    let same = parser.conditions.test(place, mask, Compare::Equal, value);
                    all = parser.conditions.and(all, same);
                }
                all
            }),
        )
    }

    fn no_address(
        &self,
        protocol: Protocol,
        qualifiers: Qualifiers,
        version: &str,
        place: usize,
    ) -> Result<Id, FilterError> {
        let name = protocol.name();
        let kind = match qualifiers.kind {
            Some(Kind::Net) => "network",
            _ => "address",
        };
        let reason = format!("{name} cannot qualify an {version} {kind}; write {name} and host …");
        self.wrong(place, reason)
    }

    pub(crate) fn ports(
        &mut self,
        ports: Ports,
        transports: Transports,
        direction: Direction,
    ) -> Id {
        let first = self.ports_in(IPV6, ports, transports, direction);
        let second = self.ports_in(IPV4, ports, transports, direction);
        self.conditions.or(first, second)
    }

    fn ports_in(
        &mut self,
        ethertype: u32,
        ports: Ports,
        transports: Transports,
        direction: Direction,
    ) -> Id {
        let link = self.ether_type(ethertype);
        let mut any = None;
        for number in transports.numbers() {
            let at = if ethertype == IPV4 { 9 } else { 6 };
            let protocol = self.layout.network(at, Size::Byte);
            let mut guard = self.conditions.equal(protocol, number);
            if ethertype == IPV4 {
                let whole = self.not_behind_fragment();
                guard = self.conditions.and(guard, whole);
            }
            let layout = self.layout;
            let same = self.directed(direction, [0, 2], &mut |parser, offset| {
                let place = match ethertype {
                    IPV4 => layout.transport4(offset, Size::Half),
                    _ => layout.transport6(offset, Size::Half),
                };
                parser.port_within(place, ports)
            });
            let one = self.conditions.and(guard, same);
            any = Some(match any {
                Some(any) => self.conditions.or(any, one),
                None => one,
            });
        }
        match any {
            Some(any) => self.conditions.and(link, any),
            None => link,
        }
    }

    fn port_within(&mut self, place: Field, ports: Ports) -> Id {
        let (low, high) = (u32::from(ports.low), u32::from(ports.high));
        if low == high {
            return self.conditions.equal(place, low);
        }
        let compare = Compare::GreaterOrEqual;
        let from = self.conditions.test(place, u32::MAX, compare, low);
        let above = self
            .conditions
            .test(place, u32::MAX, Compare::Greater, high);
        let to = self.conditions.not(above);
        self.conditions.and(from, to)
    }

    /// Applies `test` at the offset of the source, of the destination, or of both, as `direction`
    /// says.
    fn directed(
        &mut self,
        direction: Direction,
        [source, destination]: [u32; 2],
        test: &mut dyn FnMut(&mut Self, u32) -> Id,
    ) -> Id {
        match direction {
            Direction::Source => test(self, source),
            Direction::Destination => test(self, destination),
            Direction::Either => {
                let (first, second) = (test(self, source), test(self, destination));
                self.conditions.or(first, second)
            }
            Direction::Both => {
                let (first, second) = (test(self, source), test(self, destination));
                self.conditions.and(first, second)
            }
        }
    }
}
