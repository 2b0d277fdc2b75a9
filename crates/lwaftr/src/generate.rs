//! Configurations and packets for trials: many softwires, made by a rule.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first address; the others follow.
    pub ipv4: Ipv4Addr,
    /// How many addresses.
    pub addresses: u32,
    /// The address of this end of all tunnels.
    pub br: Ipv6Addr,
    /// The first customer's address; the others follow.
    pub b4: Ipv6Addr,
    /// Bits of the PSID: each address has 2^`psid_bits` customers.
    pub psid_bits: u8,
}

/// Why there is no such configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// More bits than a port has.
    #[error("psid-length {0}: must be 0 to 16")]
    Bits(u8),
    /// More softwires than a table can have, or none.
    #[error("{0} softwires: 1 to {max} are possible", max = crate::table::SOFTWIRES_MAX)]
    Softwires(u64),
    /// Addresses behind the last one.
    #[error("{addresses} addresses from {ipv4} on: the last one is 255.255.255.255")]
    Addresses {
        /// The first one.
        ipv4: Ipv4Addr,
        /// How many.
        addresses: u32,
    },
}

impl Plan {
    /// Checks that it can be made.
    ///
    /// # Errors
    /// It cannot.
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
        Ok(())
    }

    /// Each softwire: its address, PSID and customer.
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

    /// The configuration as text, with addresses for a trial.
    ///
    /// # Errors
    /// It cannot be made.
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
    }
}
