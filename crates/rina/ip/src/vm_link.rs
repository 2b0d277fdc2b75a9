//! The link between a host and a VM without a network card, by which the VM has IP addresses and a
//! default route.
//!
//! ```text
//!   VM a                                            host
//!   carina0 10.9.1.2/24 ------- DIF hv.a ------- ip-a 10.9.1.1/32
//!   default route to carina0                     route to 10.9.1.2/32, ip:0.0.0.0/0 registered
//! ```
//!
//! The host registers all addresses, so that the VM sends the packets for other systems to the
//! host. The interface of the host has no link prefix: several VMs may have addresses of the same
//! prefix, and reach each other through the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carina_api::DifName;

use crate::error::IpError;
use crate::prefix::{Address, IpPrefix};
use crate::settings::IpSettings;

/// The link between a host and a VM without a network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmLink {
    dif: DifName,
    addresses: Vec<Address>,
    is_translated: bool,
}

impl VmLink {
    /// Makes the link of a VM that has these addresses in the DIF between host and VM. With
    /// `is_translated` (NAT), packets of the VM leave the host with an address of the host.
    ///
    /// # Errors
    /// There is no address, or a prefix has no second address for the host.
    pub fn new(
        dif: DifName,
        addresses: Vec<Address>,
        is_translated: bool,
    ) -> Result<VmLink, IpError> {
        let wrong = |value: String, right| IpError::Setting {
            field: "ip",
            value,
            right,
        };
        if addresses.is_empty() {
            return Err(wrong("empty".to_owned(), "an address such as 10.9.1.2/24"));
        }
        for address in &addresses {
            let bits_max = if address.address.is_ipv4() { 30 } else { 126 };
            let link = address.link();
            let last = match link {
                IpPrefix::V4(prefix) => Some(prefix.address().to_bits() | host_bits(prefix.bits())),
                IpPrefix::V6(_) => None,
            };
            let is_broadcast =
                matches!(address.address, IpAddr::V4(it) if Some(it.to_bits()) == last);
            if address.bits > bits_max || is_broadcast || address.address == link.address() {
                let right = "an address of a VM with the length of a prefix that has room for the \
                             host, such as 10.9.1.2/24 or fd00:9::2/64,";
                return Err(wrong(address.to_string(), right));
            }
        }
        Ok(VmLink {
            dif,
            addresses,
            is_translated,
        })
    }

    /// Returns the settings of the interface of VM `vm` on its host.
    #[must_use]
    pub fn of_host(&self, vm: &str) -> IpSettings {
        let hosts = self
            .addresses
            .iter()
            .map(|address| IpPrefix::host(address.address));
        let hosts: Vec<IpPrefix> = hosts.collect();
        let own = self.host_addresses().into_iter().map(|address| Address {
            address,
            bits: IpPrefix::host(address).bits(),
        });
        let links = self.addresses.iter().map(|address| address.link());
        let mut settings = IpSettings {
            address: own.collect(),
            tun: host_interface(vm),
            prefix: self.everywhere(),
            route: hosts.clone(),
            peers: hosts,
            nat: links.filter(|_| self.is_translated).collect(),
            ..IpSettings::new(self.dif.clone(), self.addresses[0])
        };
        settings.nat.dedup();
        settings.address.dedup();
        settings
    }

    /// Returns the settings of the interface in the VM.
    #[must_use]
    pub fn of_vm(&self) -> IpSettings {
        IpSettings {
            address: self.addresses.clone(),
            route: self.everywhere(),
            ..IpSettings::new(self.dif.clone(), self.addresses[0])
        }
    }

    /// Returns the addresses of the host on the link: of each prefix the first that the VM does not
    /// have.
    #[must_use]
    pub fn host_addresses(&self) -> Vec<IpAddr> {
        let of = |address: &Address| {
            let first = after(address.link().address(), 1);
            if first == address.address {
                after(address.link().address(), 2)
            } else {
                first
            }
        };
        self.addresses.iter().map(of).collect()
    }

    /// The prefix with all addresses, of each version of IP that the VM has.
    fn everywhere(&self) -> Vec<IpPrefix> {
        let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let has = |all: &IpAddr| {
            let mut addresses = self.addresses.iter();
            addresses.any(|address| address.address.is_ipv4() == all.is_ipv4())
        };
        let all = all.into_iter().filter(has);
        all.map(|address| Address { address, bits: 0 }.link())
            .collect()
    }
}

/// Name of the interface of a VM on its host: `ip-` and the name of the VM, of which a long one is
/// shortened and made distinct by a checksum.
fn host_interface(vm: &str) -> String {
    if vm.len() + 3 <= INTERFACE_NAME_MAX {
        return format!("ip-{vm}");
    }
    // FNV-1a, folded to 16 bits.
    let hash = vm.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let start: String = vm.chars().take(SHORTENED_TO).collect();
    format!("ip-{start}-{:04x}", (hash ^ hash >> 16) as u16)
}

fn after(address: IpAddr, count: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() + u32::from(count)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() + u128::from(count)).into(),
    }
}

fn host_bits(bits: u8) -> u32 {
    u32::MAX.checked_shr(u32::from(bits)).unwrap_or_default()
}

/// Longest name of an interface, in bytes.
const INTERFACE_NAME_MAX: usize = 15;
const SHORTENED_TO: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn link(addresses: &[&str]) -> Result<VmLink, IpError> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        VmLink::new(DifName::new("hv.a").unwrap(), addresses.collect(), true)
    }

    #[test]
    fn host_has_the_first_address_that_the_vm_does_not_have() {
        for (vm, host) in [
            ("10.9.1.2/24", "10.9.1.1"),
            ("10.9.1.1/24", "10.9.1.2"),
            ("10.9.1.77/30", "10.9.1.78"),
            ("fd00:9::2/64", "fd00:9::1"),
        ] {
            let addresses = link(&[vm]).unwrap().host_addresses();
            assert_eq!(addresses, [host.parse::<IpAddr>().unwrap()], "{vm}");
        }
        for wrong in ["10.9.1.2/31", "10.9.1.2/32", "10.9.1.0/24", "10.9.1.255/24"] {
            let error = link(&[wrong]).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        assert!(link(&[]).is_err());
    }

    #[test]
    fn both_ends_have_settings_that_suit_each_other() {
        let link = link(&["10.9.1.2/24", "fd00:9::2/64"]).unwrap();
        let (host, vm) = (link.of_host("a"), link.of_vm());
        host.check().unwrap();
        vm.check().unwrap();
        let text =
            |all: &[IpPrefix]| -> Vec<String> { all.iter().map(ToString::to_string).collect() };
        assert_eq!(text(&vm.route), ["0.0.0.0/0", "::/0"]);
        assert_eq!(text(&host.prefix), ["0.0.0.0/0", "::/0"]);
        assert_eq!(text(&host.route), ["10.9.1.2/32", "fd00:9::2/128"]);
        assert_eq!(text(&host.nat), ["10.9.1.0/24", "fd00:9::/64"]);
        assert_eq!(host.tun, "ip-a");
        // The VM may have its own addresses only.
        assert!(vm.own().into_iter().all(|prefix| host.may_have(prefix)));
        assert!(!host.may_have("10.9.1.0/24".parse().unwrap()));
    }

    #[test]
    fn long_names_of_vms_have_distinct_interfaces() {
        let names = ["a-rather-long-name-1", "a-rather-long-name-2"].map(host_interface);
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() <= INTERFACE_NAME_MAX));
    }
}
