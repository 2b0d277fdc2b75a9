//! `softwire-config` of the model `snabb-softwire`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use carina_wire::ether::Mac;

use super::{ADDRESS4, ADDRESS6, File, PORT, Parts, YES_NO, bits};
use crate::config::{Address, Instance, NextHopAddress, Queue, Side};
use crate::text::{Fault, ReadError, Statement, set};

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
            "psid-map" | "br-address" => Err(Fault::Model(format!(
                "{} belongs to version 1 of the model; `snabb config` of Snabb 2017.07 and later \
                 writes a file of version 2 or 3",
                at.keyword
            ))
            .at(at.line)),
            _ => Err(at.unknown("binding-table", "softwire, version")),
        })
    }

    fn softwire(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        let mut parts = Parts::default();
        self.block(opening, |file, at| match at.keyword {
            "ipv4" => set(&mut parts.ipv4, at, at.parse(ADDRESS4)),
            "psid" => set(&mut parts.psid, at, at.parse(PORT)),
            "b4-ipv6" => set(&mut parts.b4, at, at.parse(ADDRESS6)),
            "br-address" => set(&mut parts.br, at, at.parse(ADDRESS6)),
            // Made keys of equal length, nothing else.
            "padding" => at.parse::<u16>(PORT).map(drop),
            "port-set" => file.port_set(at, &mut parts),
            _ => Err(at.unknown(
                "softwire",
                "ipv4, psid, b4-ipv6, br-address, padding, port-set",
            )),
        })?;
        let names = ["ipv4", "psid", "b4-ipv6", "br-address"];
        self.add(opening.line, &parts.whole(opening.line, names)?)
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
        let (mut ip, mut mac, mut vlan) = (None, None, None);
        let mut next_hop = None;
        self.block(opening, |file, at| match at.keyword {
            "ip" => set(&mut ip, at, at.parse(expected)),
            "mac" => set(&mut mac, at, station(at)),
            "vlan-tag" => {
                let tag = at.parse_where("a VLAN tag, 0 to 4094,", |tag: &u16| *tag < 4095);
                set(&mut vlan, at, tag)
            }
            "next-hop" => file.block(at, |_, at| match at.keyword {
                "ip" => set(
                    &mut next_hop,
                    at,
                    at.parse(expected).map(NextHopAddress::Ip),
                ),
                "mac" => set(&mut next_hop, at, station(at).map(NextHopAddress::Mac)),
                _ => Err(at.unknown("next-hop", "ip, mac")),
            }),
            _ => Err(at.unknown("an interface of a queue", "ip, mac, vlan-tag, next-hop")),
        })?;
        let missing = |missing| {
            let container = "an interface of a queue";
            Fault::Missing { container, missing }.at(opening.line)
        };
        Ok(Address {
            ip: ip.ok_or_else(|| missing("ip"))?,
            mac: mac.ok_or_else(|| missing("mac"))?,
            vlan,
            next_hop: next_hop.ok_or_else(|| missing("next-hop"))?,
        })
    }

    fn external_interface(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        self.block(opening, |file, at| match at.keyword {
            "mtu" => {
                file.config.external.mtu = at.parse(PORT)?;
                Ok(())
            }
            // No packet is refused for its length on arrival.
            "mru" => at.parse::<u16>(PORT).map(drop),
            _ => {
                let mut side = std::mem::take(&mut file.config.external.side);
                let result = file.side(at, &mut side, "external-interface");
                file.config.external.side = side;
                result
            }
        })
    }

    fn internal_interface(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        self.block(opening, |file, at| {
            let internal = &mut file.config.internal;
            match at.keyword {
                "mtu" => internal.mtu = at.parse(PORT)?,
                "mru" => {
                    at.parse::<u16>(PORT)?;
                }
                "flow-label" => {
                    let is_label = |label: &u32| *label < 1 << 20;
                    internal.flow_label = at.parse_where("a number of 20 bits", is_label)?;
                }
                "hairpinning" => internal.has_hairpinning = at.parse(YES_NO)?,
                // That of the queue counts.
                "vlan-tag" => {
                    at.parse::<u16>(PORT)?;
                }
                _ => {
                    let mut side = std::mem::take(&mut internal.side);
                    let result = file.side(at, &mut side, "internal-interface");
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
            "ingress-filter" => side.ingress_filter = Some(at.text()?.to_owned()),
            "egress-filter" => side.egress_filter = Some(at.text()?.to_owned()),
            "allow-incoming-icmp" => side.allows_icmp = at.parse(YES_NO)?,
            "generate-icmp-errors" => side.sends_icmp_errors = at.parse(YES_NO)?,
            "error-rate-limiting" => {
                let rate = &mut side.error_rate;
                return self.block(at, |_, at| {
                    match at.keyword {
                        "packets" => rate.packets = at.parse(COUNT)?,
                        "period" => {
                            let expected = "a number of seconds from 1 on";
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
                     also flow-label, hairpinning, vlan-tag",
                ));
            }
        }
        Ok(())
    }
}

/// A MAC address of one station.
fn station(at: &Statement<'_>) -> Result<Mac, ReadError> {
    at.parse_where(MAC, |mac: &Mac| !mac.is_group())
}
