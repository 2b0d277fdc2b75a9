//! Names that are fit for files, hosts and interfaces.

use super::limits::{INTERFACE_MAX, NAME_MAX};

/// Whether a network, a node or an access point can have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let ends = !name.starts_with('-') && !name.ends_with('-');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(inside) && ends
}

/// Whether an interface of a node can have this name.
#[must_use]
pub fn is_interface(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_path = name == "." || name == "..";
    (1..=INTERFACE_MAX).contains(&name.len()) && name.chars().all(inside) && !is_path
}

/// Whether the kernel has an interface of this name in every namespace, or gives the name another
/// meaning: `all` and `default` are directories of settings beside those of interfaces.
#[must_use]
pub fn is_of_kernel(interface: &str) -> bool {
    OF_KERNEL.contains(&interface)
}

/// The loopback interface, settings of all interfaces, and tunnels that come with their modules.
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
