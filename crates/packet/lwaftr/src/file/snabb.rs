//! Reads `softwire-config` of the model `snabb-softwire`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use carina_wire::ether::Mac;

use super::{ADDRESS4, ADDRESS6, EXTERNAL, File, INTERNAL, PORT, Parts, YES_NO, bits};
use crate::config::{Address, Instance, NextHopAddress, Queue, Side};
use crate::text::{Fault, ReadError, Statement, set};

/// Leaves that every softwire must have.
pub(super) const SOFTWIRE_NAMES: [&str; 4] = ["ipv4", "psid", "b4-ipv6", "br-address"];

const MAC: &str = "a MAC address";
const COUNT: &str = "a number, 0 to 4294967295,";

impl<'a> File<'a> {
    pub(super) fn softwire_config(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        self.block(opening, |file, at| match at.keyword {
            "name" => {
                file.config.name = Some(at.text()?.to_owned());
                Ok(())
            }
            "instance" => file.instance(at),
            "external-interface" => file.external_interface(at),
            "internal-interface" => file.internal_interface(at),
            "binding-table" => file.binding_table(at),
            _ => Err(at.unknown(
                "softwire-config",
                "name, instance, external-interface, internal-interface, binding-table",
            )),
        })
    }

    fn binding_table(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        self.block(opening, |file, at| match at.keyword {
            "softwire" => file.softwire(at),
            "version" => {
                at.expect_block()?;
                file.reader.skip_block()
            }
            "psid-map" => file.psid_map(at),
            "br-address" => file.br_address(at),
            _ => Err(at.unknown(
                "binding-table",
                "softwire, version; in version 1 also psid-map, br-address",
            )),
        })?;
        self.add_softwires1()
    }

    fn softwire(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        let mut parts = Parts::default();
        self.block(opening, |file, at| file.softwire_member(at, &mut parts))?;
        if parts.is_version1() {
            self.version1.keep(opening.line, parts);
            return Ok(());
        }
        self.add(opening.line, &parts.whole(opening.line, SOFTWIRE_NAMES)?)
    }

    pub(super) fn softwire_member(
        &mut self,
        at: &Statement<'a>,
        parts: &mut Parts,
    ) -> Result<(), ReadError> {
        match at.keyword {
            "ipv4" => set(&mut parts.ipv4, at, at.parse(ADDRESS4)),
            "psid" => set(&mut parts.psid, at, at.parse(PORT)),
            "b4-ipv6" => set(&mut parts.b4, at, at.parse(ADDRESS6)),
            "br-address" => set(&mut parts.br, at, at.parse(ADDRESS6)),
            // Read and ignored: Snabb needs it to give its keys equal lengths.
            "padding" => at.parse::<u16>(PORT).map(drop),
            "port-set" => self.port_set(at, parts),
            "br" => set(&mut parts.br_number, at, at.parse("a number, 1 or more,")),
            _ => Err(at.unknown(
                "softwire",
                "ipv4, psid, b4-ipv6, br-address, padding, port-set; in version 1 also br",
            )),
        }
    }

    fn port_set(&mut self, opening: &Statement<'a>, parts: &mut Parts) -> Result<(), ReadError> {
        let mut psid_bits = None;
        self.block(opening, |_, at| match at.keyword {
            "psid-length" => set(&mut psid_bits, at, bits(at)),
            "reserved-ports-bit-count" => {
                parts.ports.offset_bits = bits(at)?;
                Ok(())
            }
            _ => Err(at.unknown("port-set", "psid-length, reserved-ports-bit-count")),
        })?;
        let missing = Fault::Missing {
            container: "port-set",
            missing: "psid-length",
        };
        parts.ports.psid_bits = psid_bits.ok_or_else(|| missing.at(opening.line))?;
        parts.has_port_set = true;
        Ok(())
    }

    fn instance(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        let mut device = None;
        let mut external_device = None;
        let mut queues: Vec<Queue> = Vec::new();
        self.block(opening, |file, at| match at.keyword {
            "device" => set(&mut device, at, at.text().map(str::to_owned)),
            "external-device" => set(&mut external_device, at, at.text().map(str::to_owned)),
            "queue" => {
                let queue = file.queue(at)?;
                if queues.iter().any(|other| other.id == queue.id) {
                    return Err(Fault::Twice(format!("queue {}", queue.id)).at(at.line));
                }
                queues.push(queue);
                Ok(())
            }
            _ => Err(at.unknown("instance", "device, external-device, queue")),
        })?;
        let missing = Fault::Missing {
            container: "instance",
            missing: "device",
        };
        let device = device.ok_or_else(|| missing.at(opening.line))?;
        if self
            .config
            .instances
            .iter()
            .any(|other| other.device == device)
        {
            return Err(Fault::Twice(format!("instance {device}")).at(opening.line));
        }
        self.config.instances.push(Instance {
            device,
            external_device,
            queues,
        });
        Ok(())
    }

    fn queue(&mut self, opening: &Statement<'a>) -> Result<Queue, ReadError> {
        let (mut id, mut external, mut internal) = (None, None, None);
        self.block(opening, |file, at| match at.keyword {
            "id" => set(&mut id, at, at.parse("a number, 0 to 255,")),
            "external-interface" => {
                let address = file.address::<Ipv4Addr>(at, ADDRESS4);
                set(&mut external, at, address)
            }
            "internal-interface" => {
                let address = file.address::<Ipv6Addr>(at, ADDRESS6);
                set(&mut internal, at, address)
            }
            _ => Err(at.unknown("queue", "id, external-interface, internal-interface")),
        })?;
        let missing = |missing| {
            let container = "queue";
            Fault::Missing { container, missing }.at(opening.line)
        };
        Ok(Queue {
            id: id.ok_or_else(|| missing("id"))?,
            external: external.ok_or_else(|| missing("external-interface"))?,
            internal: internal.ok_or_else(|| missing("internal-interface"))?,
        })
    }

    fn address<T: FromStr + Copy>(
        &mut self,
        opening: &Statement<'a>,
        expected: &'static str,
    ) -> Result<Address<T>, ReadError> {
        let mut parts = AddressParts::default();
        self.block(opening, |file, at| {
            match file.address_member(at, expected, &mut parts) {
                Some(result) => result,
                None => Err(at.unknown("an interface of a queue", "ip, mac, vlan-tag, next-hop")),
            }
        })?;
        parts.whole(opening.line, "an interface of a queue")
    }

    /// Reads a statement of an own address; `None` if the statement is not one.
    pub(super) fn address_member<T: FromStr + Copy>(
        &mut self,
        at: &Statement<'a>,
        expected: &'static str,
        parts: &mut AddressParts<T>,
    ) -> Option<Result<(), ReadError>> {
        Some(match at.keyword {
            "ip" => set(&mut parts.ip, at, at.parse(expected)),
            "mac" => set(&mut parts.mac, at, station(at)),
            "vlan-tag" => {
                let tag = at.parse_where("a VLAN tag, 0 to 4094,", |tag: &u16| *tag < 4095);
                set(&mut parts.vlan, at, tag)
            }
            "next-hop" => self.block(at, |_, at| match at.keyword {
                "ip" | "mac" if parts.next_hop.is_some() => {
                    let fault = "next-hop has more than one member: give either ip or mac";
                    Err(Fault::Model(fault.to_owned()).at(at.line))
                }
                "ip" => {
                    let next = at.parse(expected).map(NextHopAddress::Ip);
                    set(&mut parts.next_hop, at, next)
                }
                "mac" => {
                    let next = station(at).map(NextHopAddress::Mac);
                    set(&mut parts.next_hop, at, next)
                }
                _ => Err(at.unknown("next-hop", "ip, mac")),
            }),
            _ => return None,
        })
    }

    fn external_interface(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        self.block(opening, |file, at| match at.keyword {
            "mtu" => {
                file.config.external.mtu = at.parse(PORT)?;
                file.checked_lines.push(((EXTERNAL, "mtu"), at.line));
                Ok(())
            }
            // Read and ignored: the AFTR accepts packets of any length.
            "mru" => at.parse::<u16>(PORT).map(drop),
            "ip" | "mac" | "vlan-tag" | "next-hop" => file.external_address1(at),
            _ => {
                let mut side = std::mem::take(&mut file.config.external.side);
                let result = file.side(at, &mut side, EXTERNAL);
                file.config.external.side = side;
                result
            }
        })
    }

    fn internal_interface(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        self.block(opening, |file, at| {
            let internal = &mut file.config.internal;
            match at.keyword {
                "mtu" => {
                    internal.mtu = at.parse(PORT)?;
                    file.checked_lines.push(((INTERNAL, "mtu"), at.line));
                }
                "mru" => {
                    at.parse::<u16>(PORT)?;
                }
                "flow-label" => {
                    let is_label = |label: &u32| *label < 1 << 20;
                    internal.flow_label = at.parse_where("a number of 20 bits", is_label)?;
                }
                "hairpinning" => internal.has_hairpinning = at.parse(YES_NO)?,
                // Version 1 has these here. In version 3 the queues have addresses, and their
                // `vlan-tag` counts.
                "ip" | "mac" | "vlan-tag" | "next-hop" => return file.internal_address1(at),
                _ => {
                    let mut side = std::mem::take(&mut internal.side);
                    let result = file.side(at, &mut side, INTERNAL);
                    file.config.internal.side = side;
                    return result;
                }
            }
            Ok(())
        })
    }

    fn side(
        &mut self,
        at: &Statement<'a>,
        side: &mut Side,
        container: &'static str,
    ) -> Result<(), ReadError> {
        match at.keyword {
            "ingress-filter" => {
                side.ingress_filter = Some(at.text()?.to_owned());
                let member = (container, "ingress-filter");
                self.checked_lines.push((member, at.line));
            }
            "egress-filter" => {
                side.egress_filter = Some(at.text()?.to_owned());
                let member = (container, "egress-filter");
                self.checked_lines.push((member, at.line));
            }
            "allow-incoming-icmp" => side.allows_icmp = at.parse(YES_NO)?,
            "generate-icmp-errors" => side.sends_icmp_errors = at.parse(YES_NO)?,
            "error-rate-limiting" => {
                let rate = &mut side.error_rate;
                return self.block(at, |_, at| {
                    match at.keyword {
                        "packets" => rate.packets = at.parse(COUNT)?,
                        "period" => {
                            let expected = "a number of seconds, 1 or more,";
                            rate.period_s = at.parse_where(expected, |period: &u32| *period > 0)?;
                        }
                        _ => return Err(at.unknown("error-rate-limiting", "packets, period")),
                    }
                    Ok(())
                });
            }
            "reassembly" => {
                let bounds = &mut side.reassembly;
                return self.block(at, |_, at| {
                    match at.keyword {
                        "max-fragments-per-packet" => bounds.fragments = at.parse(COUNT)?,
                        "max-packets" => bounds.packets = at.parse(COUNT)?,
                        _ => {
                            let known = "max-fragments-per-packet, max-packets";
                            return Err(at.unknown("reassembly", known));
                        }
                    }
                    Ok(())
                });
            }
            _ => {
                return Err(at.unknown(
                    container,
                    "mtu, mru, ingress-filter, egress-filter, allow-incoming-icmp, \
                     generate-icmp-errors, error-rate-limiting, reassembly; the internal one \
                     also flow-label, hairpinning, vlan-tag; in version 1 also ip, mac, vlan-tag, \
                     next-hop",
                ));
            }
        }
        Ok(())
    }
}

/// The statements of an own address that have been read so far.
pub(super) struct AddressParts<T> {
    ip: Option<T>,
    mac: Option<Mac>,
    vlan: Option<u16>,
    next_hop: Option<NextHopAddress<T>>,
}

impl<T> Default for AddressParts<T> {
    fn default() -> AddressParts<T> {
        AddressParts {
            ip: None,
            mac: None,
            vlan: None,
            next_hop: None,
        }
    }
}

impl<T> AddressParts<T> {
    /// Whether a statement other than `vlan-tag` has been read.
    pub(super) fn is_begun(&self) -> bool {
        self.ip.is_some() || self.mac.is_some() || self.next_hop.is_some()
    }

    pub(super) fn whole(self, line: u32, container: &'static str) -> Result<Address<T>, ReadError> {
        let missing = |missing| Fault::Missing { container, missing }.at(line);
        Ok(Address {
            ip: self.ip.ok_or_else(|| missing("ip"))?,
            mac: self.mac.ok_or_else(|| missing("mac"))?,
            vlan: self.vlan,
            next_hop: self.next_hop.ok_or_else(|| missing("next-hop"))?,
        })
    }
}

/// Parses a MAC address that is not a group address.
fn station(at: &Statement<'_>) -> Result<Mac, ReadError> {
    at.parse_where(MAC, |mac: &Mac| !mac.is_group())
}
