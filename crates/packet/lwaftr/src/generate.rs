//! Configurations and packets for tests and benchmarks, with any number of generated softwires.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use carina_apps::sample_packet::{ENDS, udp_packet_of};
use carina_wire::inet::{ETHERTYPE_IPV6, PROTOCOL_IPV4};

use crate::link::ETHER;
use crate::table::{PortSets, Softwire};

/// The softwires to generate: which addresses they have, and how many share each IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first IPv4 address; the others follow it.
    pub ipv4: Ipv4Addr,
    /// Number of consecutive IPv4 addresses that the customers share.
    pub addresses: u32,
    /// The BR address of all softwires.
    pub br: Ipv6Addr,
    /// The address of the first B4; the others follow it.
    pub b4: Ipv6Addr,
    /// Bits of the PSID: each address has 2^`psid_bits` customers.
    pub psid_bits: u8,
}

/// Why no binding table or test packets can be generated from a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The plan's PSID has more than 16 bits; holds their number.
    #[error("psid-length {0}: must be 0 to 16")]
    Bits(u8),
    /// A binding table cannot hold as many softwires as the plan asks for, or the plan asks for 0;
    /// holds their number.
    #[error("{0} softwires: must be 1 to {max}", max = crate::table::SOFTWIRES_MAX)]
    Softwires(u64),
    /// A frame of this length is too short for its headers, or longer than a jumbo frame.
    #[error("frames of {0} bytes: must be {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}")]
    Frame(usize),
    /// The addresses run beyond the last IPv4 address.
    #[error(
        "{addresses} addresses from {ipv4} on exceed 255.255.255.255: begin at a lower address"
    )]
    Addresses {
        /// The first IPv4 address of the range.
        ipv4: Ipv4Addr,
        /// Number of IPv4 addresses that the plan asks for.
        addresses: u32,
    },
    /// The addresses of the B4s run beyond the last IPv6 address.
    #[error("{softwires} B4s from {b4} on exceed the last IPv6 address: begin at a lower address")]
    B4s {
        /// The address of the first B4.
        b4: Ipv6Addr,
        /// Number of softwires that the plan asks for.
        softwires: u64,
    },
}

impl Plan {
    /// Checks the plan.
    ///
    /// # Errors
    /// The plan is invalid.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.psid_bits > 16 {
            return Err(PlanError::Bits(self.psid_bits));
        }
        let softwires = u64::from(self.addresses) << self.psid_bits;
        if softwires == 0 || softwires > crate::table::SOFTWIRES_MAX as u64 {
            return Err(PlanError::Softwires(softwires));
        }
        if self
            .ipv4
            .to_bits()
            .checked_add(self.addresses - 1)
            .is_none()
        {
            return Err(PlanError::Addresses {
                ipv4: self.ipv4,
                addresses: self.addresses,
            });
        }
        let last = self.b4.to_bits().checked_add(u128::from(softwires - 1));
        if last.is_none() {
            return Err(PlanError::B4s {
                b4: self.b4,
                softwires,
            });
        }
        Ok(())
    }

    /// All softwires, each as IPv4 address, PSID and address of the B4.
    pub fn softwires(&self) -> impl Iterator<Item = (Ipv4Addr, u16, Ipv6Addr)> {
        let sets = 1_u64 << self.psid_bits;
        let (ipv4, b4) = (self.ipv4.to_bits(), self.b4.to_bits());
        (0..u64::from(self.addresses) * sets).map(move |number| {
            let address = ipv4.wrapping_add((number / sets) as u32);
            let customer = b4.wrapping_add(u128::from(number));
            let psid = (number % sets) as u16;
            (address.into(), psid, customer.into())
        })
    }

    /// Makes `count` frames of `bytes` bytes from the Internet, and as many from B4s, which are 40
    /// bytes longer. They use the softwires in turn. The lengths are without the 4 bytes of FCS.
    ///
    /// # Errors
    /// The plan or the frame length is invalid.
    pub fn frames(&self, count: usize, bytes: usize) -> Result<[Vec<Vec<u8>>; 2], PlanError> {
        self.check()?;
        if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&bytes) {
            return Err(PlanError::Frame(bytes));
        }
        let ports = PortSets {
            offset_bits: 0,
            psid_bits: self.psid_bits,
        };
        // Repeat all softwires as often as it takes; there is at least one, as checked above.
        let repeats = count.div_ceil((self.addresses as usize) << self.psid_bits);
        let softwires = (0..repeats).flat_map(|_| self.softwires());
        let softwires = softwires.take(count).map(|(ipv4, psid, b4)| Softwire {
            ipv4,
            psid,
            ports,
            b4,
            br: self.br,
        });
        let both =
            softwires.map(|softwire| (from_internet(&softwire, bytes), from_b4(&softwire, bytes)));
        let (external, internal) = both.unzip();
        Ok([external, internal])
    }

    /// The configuration as text, with fixed own addresses and next hops.
    ///
    /// # Errors
    /// The plan is invalid.
    pub fn text(&self) -> Result<String, PlanError> {
        self.check()?;
        let mut text = HEAD.to_owned();
        for (ipv4, psid, b4) in self.softwires() {
            let _ = writeln!(
                text,
                "    softwire {{ ipv4 {ipv4}; psid {psid}; b4-ipv6 {b4}; br-address {}; \
                 port-set {{ psid-length {}; }} }}",
                self.br, self.psid_bits
            );
        }
        text += "  }\n}\n";
        Ok(text)
    }
}

/// Length of the shortest Ethernet frame, without FCS.
const FRAME_BYTES_MIN: usize = 60;
/// Length of a jumbo frame, without FCS.
const FRAME_BYTES_MAX: usize = 9014;

/// A UDP frame of `bytes` bytes from the Internet to a softwire, to a port in the first block of
/// its port set.
#[must_use]
pub fn from_internet(softwire: &Softwire, bytes: usize) -> Vec<u8> {
    udp_packet_of(bytes, [ENDS[0], end(softwire)])
}

/// The reply to that frame, encapsulated by the B4; 40 bytes longer than `bytes`.
#[must_use]
pub fn from_b4(softwire: &Softwire, bytes: usize) -> Vec<u8> {
    let inner = udp_packet_of(bytes, [end(softwire), ENDS[0]]);
    let (ether, packet) = inner.split_at(ETHER);
    let mut outer = [0; 40];
    (outer[0], outer[6], outer[7]) = (0x60, PROTOCOL_IPV4, 64);
    outer[4..6].copy_from_slice(&(packet.len() as u16).to_be_bytes());
    outer[8..24].copy_from_slice(&softwire.b4.octets());
    outer[24..].copy_from_slice(&softwire.br.octets());
    [&ether[..12], &ETHERTYPE_IPV6.to_be_bytes(), &outer, packet].concat()
}

/// The softwire's IPv4 address, and a port in the first block of its set: 5 above the first port,
/// or the last one if the block is smaller.
fn end(softwire: &Softwire) -> ([u8; 4], u16) {
    let low_bits = 16 - u32::from(softwire.ports.psid_bits);
    let first = u32::from(softwire.psid) << low_bits;
    let port = first + 5.min((1 << low_bits) - 1);
    (softwire.ipv4.octets(), port as u16)
}

const HEAD: &str = "\
softwire-config {
  instance {
    device \"internal\";
    external-device \"external\";
    queue {
      id 0;
      external-interface {
        ip 10.10.10.10;
        mac 02:00:00:00:00:01;
        next-hop { mac 02:00:00:00:00:02; }
      }
      internal-interface {
        ip 8:9:a:b:c:d:e:f;
        mac 02:00:00:00:00:01;
        next-hop { mac 02:00:00:00:00:02; }
      }
    }
  }
  external-interface {
    mtu 1460;
  }
  internal-interface {
    mtu 1500;
  }
  binding-table {
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::read;

    const PLAN: Plan = Plan {
        ipv4: Ipv4Addr::new(10, 0, 0, 254),
        addresses: 3,
        br: Ipv6Addr::new(8, 9, 0, 0, 0, 0, 0, 1),
        b4: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xffff),
        psid_bits: 6,
    };

    #[test]
    fn made_configuration_has_its_softwires() {
        let loaded = read(&PLAN.text().unwrap(), false).unwrap();
        assert_eq!((loaded.table.len(), loaded.warnings.len()), (192, 0));
        let last = loaded.table.find([10, 0, 1, 0], Some(0xffff)).unwrap();
        assert_eq!(Ipv6Addr::from(last.b4).to_string(), "fd00::1:be");
    }

    #[test]
    fn frames_are_those_of_the_softwires() {
        let table = read(&PLAN.text().unwrap(), false).unwrap().table;
        let [external, internal] = PLAN.frames(200, 60).unwrap();
        assert_eq!((external.len(), internal.len()), (200, 200));
        for (number, (external, internal)) in external.iter().zip(&internal).enumerate() {
            let to = <[u8; 4]>::try_from(&external[30..34]).unwrap();
            let port = u16::from_be_bytes([external[36], external[37]]);
            let owner = table.find(to, Some(port)).unwrap();
            assert_eq!((owner.b4, owner.br), {
                let ends = internal[22..54].split_at(16);
                (ends.0.try_into().unwrap(), ends.1.try_into().unwrap())
            });
            assert_eq!((external.len(), internal.len()), (60, 100), "{number}");
        }
        let whole = Plan {
            psid_bits: 16,
            addresses: 1,
            ..PLAN
        };
        assert_eq!(whole.frames(70_000, 60).unwrap()[0].len(), 70_000);
        let error = PLAN.frames(1, 59).unwrap_err().to_string();
        assert_eq!(error, "frames of 59 bytes: must be 60 to 9014");
    }

    #[test]
    fn impossible_plans_are_refused() {
        let wrong = |plan: Plan| plan.text().unwrap_err().to_string();
        let bits = Plan {
            psid_bits: 17,
            ..PLAN
        };
        assert_eq!(wrong(bits), "psid-length 17: must be 0 to 16");
        let none = Plan {
            addresses: 0,
            ..PLAN
        };
        assert!(wrong(none).starts_with("0 softwires"));
        let behind = Plan {
            ipv4: Ipv4Addr::BROADCAST,
            ..PLAN
        };
        assert!(wrong(behind).starts_with("3 addresses from 255.255.255.255"));
        let behind = Plan {
            b4: Ipv6Addr::from_bits(u128::MAX - 190),
            ..PLAN
        };
        assert!(wrong(behind).starts_with("192 B4s from ffff:"));
    }
}
