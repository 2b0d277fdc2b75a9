//! Syntax of names that also serve as names of files, hosts and interfaces.

use super::limits::{INTERFACE_MAX, NAME_MAX};

/// Whether `name` is a valid name for a network, a node or an access point.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let ends = !name.starts_with('-') && !name.ends_with('-');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(inside) && ends
}

/// Whether `name` is a valid name for an interface of a node.
#[must_use]
pub fn is_interface(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_path = name == "." || name == "..";
    (1..=INTERFACE_MAX).contains(&name.len()) && name.chars().all(inside) && !is_path
}

/// Whether the kernel reserves this name: it has an interface of this name in every namespace, or
/// the name means something else (`all` and `default` are directories beside those of interfaces in
/// `/proc/sys/net`).
#[must_use]
pub fn is_of_kernel(interface: &str) -> bool {
    OF_KERNEL.contains(&interface)
}

/// The loopback interface, the settings of all interfaces, and tunnel devices that kernel modules
/// create.
const OF_KERNEL: [&str; 13] = [
    "lo",
    "all",
    "default",
    "tunl0",
    "gre0",
    "gretap0",
    "erspan0",
    "ip_vti0",
    "ip6_vti0",
    "sit0",
    "ip6tnl0",
    "ip6gre0",
    "bonding_masters",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_the_kernel_are_known() {
        for name in OF_KERNEL {
            assert!(is_interface(name) && is_of_kernel(name), "{name}");
        }
        assert!(!is_of_kernel("eth0") && !is_of_kernel("lo0"));
    }
}
