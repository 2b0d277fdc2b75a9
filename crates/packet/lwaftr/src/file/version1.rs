//! Reads what is different in version 1 of `snabb-softwire` (2017). The own addresses are in
//! `external-interface` and `internal-interface`, not in a queue. A softwire refers to two other
//! lists for its BR address and for its port set:
//!
//! ```text
//!   br-address 2001:db8:ffff::1;
//!   psid-map { addr 192.0.2.1; end-addr 192.0.2.9; psid-length 6; shift 10; }
//!   softwire { ipv4 192.0.2.1; psid 5; b4-ipv6 2001:db8::5; br 1; }
//! ```
//!
//! `br` is a position in the list of `br-address`, from 1 (default: 1).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::snabb::{AddressParts, SOFTWIRE_NAMES};
use super::{ADDRESS4, ADDRESS6, File, Parts, bits};
use crate::config::{Instance, Queue};
use crate::table::PortSets;
use crate::text::{Fault, ReadError, Statement, set};

/// The statements of version 1 that have been read so far.
#[derive(Default)]
pub(super) struct Version1 {
    external: AddressParts<Ipv4Addr>,
    internal: AddressParts<Ipv6Addr>,
    brs: Vec<Ipv6Addr>,
    maps: Vec<Map>,
    /// Softwires that can be completed only when both lists have been read, with their lines.
    softwires: Vec<(u32, Parts)>,
}

/// How the ports of a range of IPv4 addresses are divided among customers.
struct Map {
    first: Ipv4Addr,
    last: Ipv4Addr,
    ports: PortSets,
}

impl Version1 {
    pub(super) fn keep(&mut self, line: u32, parts: Parts) {
        self.softwires.push((line, parts));
    }

    fn ports_of(&self, ipv4: Ipv4Addr) -> Option<PortSets> {
        let mut maps = self.maps.iter();
        let map = maps.find(|map| map.first <= ipv4 && ipv4 <= map.last)?;
        Some(map.ports)
    }
}

impl Parts {
    /// Whether the softwire refers to the lists of version 1 for its BR address or its port set.
    pub(super) fn is_version1(&self) -> bool {
        self.br_number.is_some() || (self.br.is_none() && !self.has_port_set)
    }
}

impl<'a> File<'a> {
    pub(super) fn external_address1(&mut self, at: &Statement<'a>) -> Result<(), ReadError> {
        let mut parts = std::mem::take(&mut self.version1.external);
        let result = self.address_member(at, ADDRESS4, &mut parts);
        self.version1.external = parts;
        result.unwrap_or(Ok(()))
    }

    pub(super) fn internal_address1(&mut self, at: &Statement<'a>) -> Result<(), ReadError> {
        let mut parts = std::mem::take(&mut self.version1.internal);
        let result = self.address_member(at, ADDRESS6, &mut parts);
        self.version1.internal = parts;
        result.unwrap_or(Ok(()))
    }

    pub(super) fn br_address(&mut self, at: &Statement<'a>) -> Result<(), ReadError> {
        self.version1.brs.push(at.parse(ADDRESS6)?);
        Ok(())
    }

    pub(super) fn psid_map(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        let (mut first, mut last, mut psid_bits, mut shift) = (None, None, None, None);
        let mut offset_bits = 0;
        self.block(opening, |_, at| match at.keyword {
            "addr" => set(&mut first, at, at.parse(ADDRESS4)),
            "end-addr" => set(&mut last, at, at.parse(ADDRESS4)),
            "psid-length" => set(&mut psid_bits, at, bits(at)),
            "shift" => set(&mut shift, at, bits(at)),
            "reserved-ports-bit-count" => {
                offset_bits = bits(at)?;
                Ok(())
            }
            _ => Err(at.unknown(
                "psid-map",
                "addr, end-addr, psid-length, reserved-ports-bit-count, shift",
            )),
        })?;
        let missing = |missing| {
            let container = "psid-map";
            Fault::Missing { container, missing }.at(opening.line)
        };
        let first: Ipv4Addr = first.ok_or_else(|| missing("addr"))?;
        let psid_bits: u8 = psid_bits.ok_or_else(|| missing("psid-length"))?;
        let ports = PortSets {
            offset_bits,
            psid_bits,
        };
        let wrong = |text: String| Err(Fault::Model(text).at(opening.line));
        // `shift` must be the number of port bits that remain below the PSID.
        let left = 16_u8.saturating_sub(psid_bits + offset_bits);
        if let Some(shift) = shift.filter(|shift| !ports.is_valid() || *shift != left) {
            return wrong(format!(
                "shift is {shift}: must be {left}, which is 16 less psid-length {psid_bits} and \
                 reserved-ports-bit-count {offset_bits}"
            ));
        }
        let last = last.unwrap_or(first);
        if last < first {
            return wrong(format!("end-addr {last} is less than addr {first}"));
        }
        self.version1.maps.push(Map { first, last, ports });
        Ok(())
    }

    /// Completes the softwires of version 1, at the end of the binding table.
    pub(super) fn add_softwires1(&mut self) -> Result<(), ReadError> {
        for (line, mut parts) in std::mem::take(&mut self.version1.softwires) {
            let wrong = |text: String| Fault::Model(text).at(line);
            if parts.br.is_none() {
                let (number, brs) = (parts.br_number.unwrap_or(1), &self.version1.brs);
                let br = (number as usize).checked_sub(1).and_then(|at| brs.get(at));
                parts.br = Some(*br.ok_or_else(|| {
                    let count = brs.len();
                    wrong(format!(
                        "br is {number}: must be 1 to {count}, a position in the list of br-address"
                    ))
                })?);
            }
            if let Some(ipv4) = parts.ipv4.filter(|_| !parts.has_port_set) {
                let ports = self.version1.ports_of(ipv4);
                parts.ports =
                    ports.ok_or_else(|| wrong(format!("no entry of psid-map contains {ipv4}")))?;
            }
            self.add(line, &parts.whole(line, SOFTWIRE_NAMES)?)?;
        }
        Ok(())
    }

    /// Makes an instance of the own addresses, which version 1 has in addition to the instances.
    pub(super) fn make_instance1(&mut self) -> Result<(), ReadError> {
        let Version1 {
            external, internal, ..
        } = std::mem::take(&mut self.version1);
        if !external.is_begun() && !internal.is_begun() {
            return Ok(());
        }
        let line = self.reader.line();
        if !self.config.instances.is_empty() {
            let text = "the AFTR's addresses are given both in an instance (versions 2 and 3) and \
                 outside of one (version 1); give them once";
            return Err(Fault::Model(text.to_owned()).at(line));
        }
        let queue = Queue {
            id: 0,
            external: external.whole(line, "external-interface")?,
            internal: internal.whole(line, "internal-interface")?,
        };
        self.config.instances.push(Instance {
            device: "internal".to_owned(),
            external_device: Some("external".to_owned()),
            queues: vec![queue],
        });
        Ok(())
    }
}
