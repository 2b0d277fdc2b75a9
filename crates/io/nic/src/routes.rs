//! Tells whether routes of this system use an interface.

use std::fs;

/// Whether an IPv4 or IPv6 route of this system uses the interface. Routes that the kernel makes
/// for every IPv6 interface (link-local and multicast) do not count.
pub(crate) fn has_route(interface: &str) -> bool {
    let table = |path: &str| fs::read_to_string(path).unwrap_or_default();
    has_ipv4_route(&table("/proc/net/route"), interface)
        || has_ipv6_route(&table("/proc/net/ipv6_route"), interface)
}

/// Searches the text of `/proc/net/route`: a line of titles, then a route in each line, with the
/// interface in the first column. (proc_net(5))
fn has_ipv4_route(table: &str, interface: &str) -> bool {
    let mut lines = table.lines().skip(1);
    lines.any(|line| line.split_whitespace().next() == Some(interface))
}

/// Searches the text of `/proc/net/ipv6_route`: a route in each line, with the destination in 32
/// hexadecimal digits in the first column, and the interface in the last.
fn has_ipv6_route(table: &str, interface: &str) -> bool {
    table.lines().any(|line| {
        let is_automatic = ["fe80", "ff00"]
            .iter()
            .any(|prefix| line.starts_with(prefix));
        !is_automatic && line.split_whitespace().next_back() == Some(interface)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_routes_are_found_by_interface() {
        let table = "Iface\tDestination\tGateway\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        assert!(has_ipv4_route(table, "eth0"));
        assert!(!has_ipv4_route(table, "eth1"));
        assert!(!has_ipv4_route(table, "Iface"));
    }

    #[test]
    fn ipv6_routes_count_unless_the_kernel_made_them() {
        let route = |to: &str, interface: &str| {
            let zero = "00000000000000000000000000000000";
            format!("{to:0<32} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 {interface}")
        };
        let table = [
            route("fd00", "eth0"),
            route("fe80", "eth1"),
            route("ff00", "eth1"),
            route("", "eth2"),
        ]
        .join("\n");
        assert!(has_ipv6_route(&table, "eth0"));
        assert!(!has_ipv6_route(&table, "eth1"));
        assert!(has_ipv6_route(&table, "eth2"));
        assert!(!has_ipv6_route(&table, "eth"));
    }
}
