//! Parses addresses, numbers and names, which follow qualifiers.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::address::{Ports, Transports};
use crate::condition::Id;
use crate::error::FilterError;
use crate::names::{ETHERTYPES, PROTOCOLS, Protocol, SERVICES, is_keyword};
use crate::qualifiers::{Kind, Qualifiers};
use crate::reader::Parser;
use crate::token::TokenKind;

impl Parser<'_> {
    /// Parses an address, or several in parentheses, with the given qualifiers.
    pub(crate) fn operand_list(&mut self, qualifiers: Qualifiers) -> Result<Id, FilterError> {
        if self.takes_not() {
            self.enter()?;
            let of = self.operand_list(qualifiers)?;
            self.depth -= 1;
            return Ok(self.conditions.not(of));
        }
        if !self.takes("(") {
            return self.address(qualifiers);
        }
        self.enter()?;
        let mut all = self.operand_list(qualifiers)?;
        while let Some(is_and) = self.joint() {
            self.next += 1;
            let next = self.operand_list(qualifiers)?;
            all = if is_and {
                self.conditions.and(all, next)
            } else {
                self.conditions.or(all, next)
            };
        }
        self.depth -= 1;
        self.expect(")", "and, or, or )")?;
        Ok(all)
    }

    fn address(&mut self, qualifiers: Qualifiers) -> Result<Id, FilterError> {
        let place = self.place();
        let Some(kind) = self.peek() else {
            return Err(self.unexpected(wanted(qualifiers)));
        };
        match *kind {
            TokenKind::Number(number) => {
                self.next += 1;
                self.number(number, qualifiers, place)
            }
            TokenKind::Ip4 { value, parts } => {
                self.next += 1;
                self.address4(value, parts, qualifiers, place)
            }
            TokenKind::Ip6(address) => {
                self.next += 1;
                self.address6(address, qualifiers, place)
            }
            TokenKind::Mac(mac) => {
                self.next += 1;
                match (qualifiers.protocol, qualifiers.kind) {
                    (Some(Protocol::Link), Some(Kind::Host) | None) => {
                        Ok(self.ether_host(mac, qualifiers.direction()))
                    }
                    _ => self.wrong(
                        place,
                        "a MAC address is possible only after ether host, ether src or ether dst"
                            .to_owned(),
                    ),
                }
            }
            TokenKind::Word(word) if !is_keyword(word) => self.name(word, qualifiers, place),
            TokenKind::Escaped(name) => self.name(name, qualifiers, place),
            TokenKind::Word(_) if qualifiers.kind == Some(Kind::Protocol) => {
                Err(self.unexpected("a number, or a name after a backslash, such as \\tcp"))
            }
            _ => Err(self.unexpected(wanted(qualifiers))),
        }
    }

    fn number(
        &mut self,
        number: u32,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<Id, FilterError> {
        match qualifiers.kind {
            Some(Kind::Port | Kind::PortRange) => {
                let Ok(port) = u16::try_from(number) else {
                    return self.wrong(place, format!("port {number}: a port must be 0 to 65535"));
                };
                let transports = self.transports(qualifiers, place)?;
                Ok(self.ports(Ports::new(port, port), transports, qualifiers.direction()))
            }
            Some(Kind::Protocol) => self.protocol_number(number, qualifiers.protocol, place),
            Some(Kind::Net) => {
                // A number with few digits is a prefix: `net 10` is 10.0.0.0/8.
                let (mut address, mut mask) = (number, u32::MAX);
                while address != 0 && address >> 24 == 0 {
                    (address, mask) = (address << 8, mask << 8);
                }
                self.host4(address, mask, qualifiers, place)
            }
            Some(Kind::Host) | None => self.host4(number, u32::MAX, qualifiers, place),
        }
    }

    fn address4(
        &mut self,
        value: u32,
        parts: u32,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<Id, FilterError> {
        self.expect_address("IPv4", qualifiers, place)?;
        // Missing parts are zeros, and are masked out.
        let shift = 32 - 8 * parts;
        let (address, own) = (value << shift, u32::MAX << shift);
        let mask = if self.takes("/") {
            let bits = self.bits(32)?;
            Some(u32::MAX.checked_shl(32 - bits).unwrap_or(0))
        } else if self.takes_word("mask") {
            let Some(TokenKind::Ip4 { value, parts }) = self.peek() else {
                return Err(self.unexpected("a mask, such as 255.255.0.0"));
            };
            self.next += 1;
            Some(value << (32 - 8 * parts))
        } else {
            None
        };
        let Some(mask) = mask else {
            return self.host4(address, own, qualifiers, place);
        };
        if qualifiers.kind != Some(Kind::Net) {
            return self.wrong(place, "a mask is possible behind net only".to_owned());
        }
        if address & !mask != 0 {
            return self.wrong_host_bits(Ipv4Addr::from_bits(address & mask), place);
        }
        self.host4(address, mask, qualifiers, place)
    }

    /// Refuses an address if the qualifiers need something else.
    fn expect_address(
        &self,
        version: &str,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<(), FilterError> {
        match qualifiers.kind {
            Some(Kind::Host | Kind::Net) | None => Ok(()),
            _ => {
                let wanted = wanted(qualifiers);
                self.wrong(
                    place,
                    format!("found an {version} address, expected {wanted}"),
                )
            }
        }
    }

    fn wrong_host_bits<T>(&self, right: impl fmt::Display, place: usize) -> Result<T, FilterError> {
        self.wrong(place, format!("bits after the mask are set; write {right}"))
    }

    fn address6(
        &mut self,
        address: u128,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<Id, FilterError> {
        self.expect_address("IPv6", qualifiers, place)?;
        let bits = if self.takes("/") {
            self.bits(128)?
        } else {
            128
        };
        if bits < 128 && qualifiers.kind != Some(Kind::Net) {
            return self.wrong(place, "a mask is possible behind net only".to_owned());
        }
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        if address & !mask != 0 {
            return self.wrong_host_bits(Ipv6Addr::from_bits(address & mask), place);
        }
        self.host6(address, mask, qualifiers, place)
    }

    fn bits(&mut self, max: u32) -> Result<u32, FilterError> {
        match self.peek() {
            Some(TokenKind::Number(bits)) if *bits <= max => {
                self.next += 1;
                Ok(*bits)
            }
            _ if max == 32 => Err(self.unexpected("a mask of 0 to 32 bits")),
            _ => Err(self.unexpected("a mask of 0 to 128 bits")),
        }
    }

    fn name(
        &mut self,
        name: &str,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<Id, FilterError> {
        match qualifiers.kind {
            Some(Kind::Port) => {
                let (port, transports) = self.port_named(name, qualifiers, place)?;
                self.next += 1;
                Ok(self.ports(Ports::new(port, port), transports, qualifiers.direction()))
            }
            Some(Kind::PortRange) => {
                let transports = self.transports(qualifiers, place)?;
                let numbers = name
                    .split_once('-')
                    .map(|(low, high)| (low.parse(), high.parse()));
                let Some((Ok(low), Ok(high))) = numbers else {
                    return Err(
                        self.unexpected("a range of ports from 0 to 65535, such as 6000-6010")
                    );
                };
                self.next += 1;
                Ok(self.ports(Ports::new(low, high), transports, qualifiers.direction()))
            }
            Some(Kind::Protocol) => {
                let number = match qualifiers.protocol {
                    Some(Protocol::Link) => ETHERTYPES
                        .iter()
                        .find(|(known, _)| *known == name)
                        .map(|(_, number)| *number),
                    _ => PROTOCOLS
                        .iter()
                        .find(|(known, _)| *known == name)
                        .map(|(_, number)| u32::from(*number)),
                };
                let Some(number) = number else {
                    return Err(self.unexpected("a number, or the name of a common protocol"));
                };
                self.next += 1;
                self.protocol_number(number, qualifiers.protocol, place)
            }
            Some(Kind::Host | Kind::Net) | None => {
                let reason = format!("{name}: names are not looked up; write an address");
                self.wrong(place, reason)
            }
        }
    }

    fn port_named(
        &self,
        name: &str,
        qualifiers: Qualifiers,
        place: usize,
    ) -> Result<(u16, Transports), FilterError> {
        let allowed = self.transports(qualifiers, place)?;
        let Some(service) = SERVICES.iter().find(|service| service.name == name) else {
            return self.wrong(
                place,
                format!("{name} is not the name of a common port; write a number"),
            );
        };
        let own = match (service.is_tcp, service.is_udp) {
            (true, false) => Transports::One(6),
            (false, true) => Transports::One(17),
            _ => Transports::All,
        };
        let transports = match (allowed, own) {
            (Transports::All, own) => own,
            (one, Transports::All) => one,
            (one, other) if one == other => one,
            _ => {
                let reason = format!(
                    "{name} is not a port of this protocol; write its number, {}",
                    service.port
                );
                return self.wrong(place, reason);
            }
        };
        Ok((service.port, transports))
    }

    fn transports(&self, qualifiers: Qualifiers, place: usize) -> Result<Transports, FilterError> {
        match qualifiers.protocol {
            None => Ok(Transports::All),
            Some(protocol @ (Protocol::Tcp | Protocol::Udp | Protocol::Sctp)) => {
                Ok(Transports::One(protocol.number().unwrap_or(0)))
            }
            Some(other) => {
                let name = other.name();
                self.wrong(
                    place,
                    format!("{name} has no ports; only tcp, udp and sctp have ports"),
                )
            }
        }
    }
}

/// What may follow these qualifiers.
fn wanted(qualifiers: Qualifiers) -> &'static str {
    match (qualifiers.kind, qualifiers.protocol) {
        (Some(Kind::Port), _) => "a port from 0 to 65535, or the name of a common port",
        (Some(Kind::PortRange), _) => "a range of ports, such as 6000-6010",
        (Some(Kind::Protocol), _) => "the number of a protocol",
        (Some(Kind::Net), _) => "a network, such as 10.0.0.0/8 or fd00::/8",
        (_, Some(Protocol::Link)) => "a MAC address",
        (Some(Kind::Host) | None, _) => "an IPv4 or IPv6 address",
    }
}
