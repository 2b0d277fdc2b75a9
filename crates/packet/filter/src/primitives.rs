//! Translates primitives into tests of header bytes, in libpcap's order.

use crate::condition::{Id, LENGTH, field};
use crate::error::FilterError;
use crate::names::Protocol;
use crate::program::{Compare, Size};
use crate::qualifiers::{Direction, Kind, Qualifiers};
use crate::reader::Parser;
use crate::token::TokenKind;

pub(crate) const IPV4: u32 = 0x0800;
pub(crate) const IPV6: u32 = 0x86dd;
const FRAGMENT_HEADER: u32 = 44;
/// The largest value of the Ethertype field that is a length. (IEEE 802.3 §3.2.6)
const LENGTH_MAX: u32 = 1500;

impl Parser<'_> {
    /// Parses a term that begins with a word.
    pub(crate) fn primitive(&mut self) -> Result<(Id, Option<Qualifiers>), FilterError> {
        let place = self.place();
        if self.takes_word("vlan") {
            return Ok((self.vlan()?, None));
        }
        if self.takes_word("less") {
            let length = self.length()?;
            let longer = self
                .conditions
                .test(LENGTH, u32::MAX, Compare::Greater, length);
            return Ok((self.conditions.not(longer), None));
        }
        if self.takes_word("greater") {
            let length = self.length()?;
            let compare = Compare::GreaterOrEqual;
            return Ok((
                self.conditions.test(LENGTH, u32::MAX, compare, length),
                None,
            ));
        }
        let protocol = self.word().and_then(Protocol::named);
        self.next += usize::from(protocol.is_some());
        if self.takes_word("broadcast") {
            return match protocol {
                None | Some(Protocol::Link) => {
                    Ok((self.ether_host([0xff; 6], Direction::Destination), None))
                }
                Some(Protocol::Ip) => {
                    let reason =
                        "ip broadcast: the mask of the network is unknown; write dst host …";
                    self.wrong(place, reason.to_owned())
                }
                Some(_) => self.wrong(place, "broadcast is possible only after ether".to_owned()),
            };
        }
        if self.takes_word("multicast") {
            return Ok((self.multicast(protocol, place)?, None));
        }
        let direction = self.direction();
        let kind = self.kind(direction);
        match (protocol, direction, kind) {
            (Some(protocol), None, None) => Ok((self.protocol_alone(protocol, place)?, None)),
            (None, None, None) => Err(self.unexpected("host, net, port, tcp, ip or another term")),
            _ => {
                let qualifiers = Qualifiers {
                    protocol,
                    direction,
                    kind,
                };
                Ok((self.operand_list(qualifiers)?, Some(qualifiers)))
            }
        }
    }

    fn direction(&mut self) -> Option<Direction> {
        let (own, other) = match self.word() {
            Some("src") => (Direction::Source, "dst"),
            Some("dst") => (Direction::Destination, "src"),
            _ => return None,
        };
        self.next += 1;
        let before = self.next;
        if let Some(is_and) = self.joint() {
            self.next += 1;
            if self.takes_word(other) {
                return Some(if is_and {
                    Direction::Both
                } else {
                    Direction::Either
                });
            }
            self.next = before;
        }
        Some(own)
    }

    fn kind(&mut self, direction: Option<Direction>) -> Option<Kind> {
        let kind = match self.word()? {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            "proto" if direction.is_none() => Kind::Protocol,
            _ => return None,
        };
        self.next += 1;
        Some(kind)
    }

    fn length(&mut self) -> Result<u32, FilterError> {
        match self.peek() {
            Some(TokenKind::Number(length)) => {
                self.next += 1;
                Ok(*length)
            }
            _ => Err(self.unexpected("a number of bytes")),
        }
    }

    /// Parses what follows `vlan`. The rest of the filter then applies to what is behind the tag.
    fn vlan(&mut self) -> Result<Id, FilterError> {
        let place = self.place();
        let mut closing = 0;
        let before = self.next;
        while self.takes("(") {
            closing += 1;
        }
        let id = match self.peek() {
            Some(TokenKind::Number(id)) => {
                self.next += 1;
                Some(*id)
            }
            _ => {
                self.next = before;
                closing = 0;
                None
            }
        };
        for _ in 0..closing {
            self.expect(")", ")")?;
        }
        let types = [0x8100, 0x88a8, 0x9100].map(|tpid| {
            let ethertype = self.layout.ethertype();
            self.conditions.equal(ethertype, tpid)
        });
        let mut tagged = self.conditions.or(types[0], types[1]);
        tagged = self.conditions.or(tagged, types[2]);
        if let Some(id) = id {
            if id > 0x0fff {
                return self.wrong(place, format!("vlan {id}: a VLAN id must be 0 to 4095"));
            }
            let control = self.layout.network(0, Size::Half);
            let same = self.conditions.test(control, 0x0fff, Compare::Equal, id);
            tagged = self.conditions.and(tagged, same);
        }
        self.layout = self.layout.behind_tag();
        Ok(tagged)
    }

    fn multicast(&mut self, protocol: Option<Protocol>, place: usize) -> Result<Id, FilterError> {
        match protocol {
            None | Some(Protocol::Link) => {
                let single = self
                    .conditions
                    .test(field(0, Size::Byte), 1, Compare::Equal, 0);
                Ok(self.conditions.not(single))
            }
            Some(Protocol::Ip) => {
                let ip = self.ether_type(IPV4);
                let first = self.layout.network(16, Size::Byte);
                let compare = Compare::GreaterOrEqual;
                let group = self.conditions.test(first, u32::MAX, compare, 224);
                Ok(self.conditions.and(ip, group))
            }
            Some(Protocol::Ip6) => {
                let ip = self.ether_type(IPV6);
                let first = self.layout.network(24, Size::Byte);
                let group = self.conditions.equal(first, 255);
                Ok(self.conditions.and(ip, group))
            }
            Some(_) => self.wrong(
                place,
                "multicast is possible only after ether, ip and ip6".to_owned(),
            ),
        }
    }

    /// The condition of a protocol that is written alone.
    pub(crate) fn protocol_alone(
        &mut self,
        protocol: Protocol,
        place: usize,
    ) -> Result<Id, FilterError> {
        let number = protocol.number().unwrap_or(0);
        match protocol {
            Protocol::Link => {
                let reason = "after ether, host, proto, broadcast, multicast or [ is expected";
                self.wrong(place, reason.to_owned())
            }
            Protocol::Ip => Ok(self.ether_type(IPV4)),
            Protocol::Ip6 => Ok(self.ether_type(IPV6)),
            Protocol::Arp => Ok(self.ether_type(0x0806)),
            Protocol::Rarp => Ok(self.ether_type(0x8035)),
            Protocol::Icmp | Protocol::Igmp | Protocol::Vrrp => Ok(self.protocol4(number)),
            Protocol::Icmp6 => Ok(self.protocol6(number)),
            _ => self.protocol_number(number, None, place),
        }
    }

    /// The condition of `proto NUMBER`, with the protocol in front of it.
    pub(crate) fn protocol_number(
        &mut self,
        number: u32,
        protocol: Option<Protocol>,
        place: usize,
    ) -> Result<Id, FilterError> {
        match protocol {
            None => {
                let first = self.protocol4(number);
                let second = self.protocol6(number);
                Ok(self.conditions.or(first, second))
            }
            Some(Protocol::Link) => self.link_type(number, place),
            Some(Protocol::Ip) => Ok(self.protocol4(number)),
            Some(Protocol::Ip6) => Ok(self.protocol6(number)),
            Some(other) => {
                let name = other.name();
                self.wrong(
                    place,
                    format!(
                        "proto is not possible after {name}; it is possible after ether, ip and ip6"
                    ),
                )
            }
        }
    }

    pub(crate) fn ether_type(&mut self, number: u32) -> Id {
        let ethertype = self.layout.ethertype();
        self.conditions.equal(ethertype, number)
    }

    fn link_type(&mut self, number: u32, place: usize) -> Result<Id, FilterError> {
        let ethertype = self.layout.ethertype();
        match number {
            0xe0 | 0xf0 | 0xfe | 0x809b | 0x80f3 => {
                let reason =
                    format!("ether proto {number} is not supported: test the bytes with ether[…]");
                self.wrong(place, reason)
            }
            0..=LENGTH_MAX => {
                let compare = Compare::Greater;
                let has_type = self
                    .conditions
                    .test(ethertype, u32::MAX, compare, LENGTH_MAX);
                let has_length = self.conditions.not(has_type);
                let service = self.layout.network(0, Size::Byte);
                let same = self.conditions.equal(service, number);
                Ok(self.conditions.and(has_length, same))
            }
            _ => Ok(self.ether_type(number)),
        }
    }

    fn protocol4(&mut self, number: u32) -> Id {
        let ip = self.ether_type(IPV4);
        let protocol = self.layout.network(9, Size::Byte);
        let same = self.conditions.equal(protocol, number);
        self.conditions.and(ip, same)
    }

    /// The protocol number is in the IPv6 header, or in a fragment header that follows it.
    fn protocol6(&mut self, number: u32) -> Id {
        let ip = self.ether_type(IPV6);
        let next = self.layout.network(6, Size::Byte);
        let behind = self.layout.transport6(0, Size::Byte);
        let first = self.conditions.equal(next, number);
        let fragment = self.conditions.equal(next, FRAGMENT_HEADER);
        let second = self.conditions.equal(behind, number);
        let second = self.conditions.and(fragment, second);
        let same = self.conditions.or(first, second);
        self.conditions.and(ip, same)
    }

    /// The IPv4 packet is whole or a first fragment.
    pub(crate) fn not_behind_fragment(&mut self) -> Id {
        let flags = self.layout.network(6, Size::Half);
        self.conditions.test(flags, 0x1fff, Compare::Equal, 0)
    }
}
