//! Reads `br-instances` of the model `ietf-softwire-br`. (RFC 8676 §5.2)

use std::net::Ipv6Addr;

use super::{ADDRESS4, ADDRESS6, EXTERNAL, File, INTERNAL, PORT, Parts, YES_NO, bits};
use crate::config::ErrorRate;
use crate::text::{Fault, ReadError, Statement, set};

const NUMBER: &str = "a number";

impl<'a> File<'a> {
    pub(super) fn br_instances(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        let mut instances = 0;
        self.block(opening, |file, at| match at.keyword {
            "binding" => file.block(at, |file, at| match at.keyword {
                "bind-instance" | "br-instance" => {
                    instances += 1;
                    if instances > 1 {
                        return Err(Fault::Twice(at.keyword.to_owned()).at(at.line));
                    }
                    file.bind_instance(at)
                }
                _ => Err(at.unknown("binding", "bind-instance")),
            }),
            "algorithm" => Err(Fault::Model(
                "algorithm configures MAP-E and MAP-T, which are not supported: an AFTR needs \
                 binding"
                    .to_owned(),
            )
            .at(at.line)),
            _ => Err(at.unknown("br-instances", "binding")),
        })
    }

    fn bind_instance(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        self.block(opening, |file, at| {
            match at.keyword {
                "name" => file.config.name = Some(at.text()?.to_owned()),
                "id" | "softwire-num-max" => {
                    at.parse::<u32>(NUMBER)?;
                }
                "softwire-payload-mtu" => {
                    file.config.internal.mtu = at.parse(PORT)?;
                    file.checked_lines.push(((INTERNAL, "mtu"), at.line));
                }
                "softwire-path-mru" => {
                    file.config.external.mtu = at.parse(PORT)?;
                    file.checked_lines.push(((EXTERNAL, "mtu"), at.line));
                }
                "enable-hairpinning" => {
                    file.config.internal.has_hairpinning = at.parse(YES_NO)?;
                }
                "binding-table-versioning" => {
                    at.expect_block()?;
                    file.reader.skip_block()?;
                }
                "icmp-policy" => return file.block(at, File::icmp_policy),
                "icmpv4-errors" | "icmpv6-errors" => return file.icmp_policy(at),
                "binding-table" => {
                    return file.block(at, |file, at| match at.keyword {
                        "binding-entry" => file.binding_entry(at),
                        _ => Err(at.unknown("binding-table", "binding-entry")),
                    });
                }
                _ => {
                    return Err(at.unknown(
                        "bind-instance",
                        "name, softwire-num-max, softwire-payload-mtu, softwire-path-mru, \
                         enable-hairpinning, binding-table-versioning, binding-table, \
                         icmpv4-errors, icmpv6-errors",
                    ));
                }
            }
            Ok(())
        })
    }

    fn icmp_policy(&mut self, at: &Statement<'a>) -> Result<(), ReadError> {
        self.block(at, |file, at| {
            let config = &mut file.config;
            // The model states the rate in errors per second.
            let rate = |at: &Statement<'_>| -> Result<ErrorRate, ReadError> {
                let packets = at.parse(NUMBER)?;
                let period_s = 1;
                Ok(ErrorRate { packets, period_s })
            };
            match at.keyword {
                "allow-incoming-icmpv4" => config.external.side.allows_icmp = at.parse(YES_NO)?,
                "generate-icmpv4-errors" => {
                    config.external.side.sends_icmp_errors = at.parse(YES_NO)?;
                }
                "icmpv4-rate" => config.external.side.error_rate = rate(at)?,
                "generate-icmpv6-errors" => {
                    config.internal.side.sends_icmp_errors = at.parse(YES_NO)?;
                }
                "icmpv6-rate" => config.internal.side.error_rate = rate(at)?,
                "icmpv4-errors" | "icmpv6-errors" => return file.icmp_policy(at),
                _ => {
                    return Err(at.unknown(
                        "icmp-policy",
                        "allow-incoming-icmpv4, generate-icmpv4-errors, icmpv4-rate, \
                         generate-icmpv6-errors, icmpv6-rate",
                    ));
                }
            }
            Ok(())
        })
    }

    fn binding_entry(&mut self, opening: &Statement<'a>) -> Result<(), ReadError> {
        let mut parts = Parts::default();
        self.block(opening, |file, at| match at.keyword {
            "binding-ipv6info" => {
                // The model allows an address or a prefix.
                let text = at.text()?;
                let text = text.strip_suffix("/128").unwrap_or(text);
                let address = text.parse::<Ipv6Addr>().map_err(|_| {
                    Fault::Value {
                        keyword: at.keyword.to_owned(),
                        value: text.to_owned(),
                        expected: "an IPv6 address, or a prefix of length 128,",
                    }
                    .at(at.line)
                });
                set(&mut parts.b4, at, address)
            }
            "binding-ipv4-addr" => set(&mut parts.ipv4, at, at.parse(ADDRESS4)),
            "br-ipv6-addr" => set(&mut parts.br, at, at.parse(ADDRESS6)),
            "port-set" => file.block(at, |_, at| {
                match at.keyword {
                    "psid-offset" => parts.ports.offset_bits = bits(at)?,
                    "psid-len" => parts.ports.psid_bits = bits(at)?,
                    "psid" => set(&mut parts.psid, at, at.parse(PORT))?,
                    _ => return Err(at.unknown("port-set", "psid-offset, psid-len, psid")),
                }
                Ok(())
            }),
            // Read and ignored: a softwire lives as long as the file lists it.
            "lifetime" => at.text().map(drop),
            _ => Err(at.unknown(
                "binding-entry",
                "binding-ipv6info, binding-ipv4-addr, br-ipv6-addr, port-set, lifetime",
            )),
        })?;
        if parts.ports.psid_bits == 0 {
            parts.psid.get_or_insert(0);
        }
        let names = [
            "binding-ipv4-addr",
            "psid in its port-set",
            "binding-ipv6info",
            "br-ipv6-addr",
        ];
        self.add(opening.line, &parts.whole(opening.line, names)?)
    }
}
