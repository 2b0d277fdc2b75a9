//! Nodes that are bridges of Linux in a namespace.
//!
//! ```text
//!   +--- namespace ------------------+
//!   |  br0, with the node's address  |
//!   |   |     |     |                |
//!   |  eth0  eth1  eth2   (ports)    |
//!   +---|-----|-----|----------------+
//! ```

use carina_vnet::document::BRIDGE;
use carina_vnet::host_part::NodePart;

use crate::error::Result;
use crate::namespace;

/// The `ip` commands that make a bridge, or change an existing one: its ports, its address and
/// its spanning tree. (IEEE 802.1D)
pub(super) fn lines_of(namespace: &str, part: &NodePart) -> Result<Vec<String>> {
    let existing = namespace::interfaces(namespace)?;
    let mut lines = vec!["link set dev lo up".to_owned()];
    if !existing.iter().any(|name| name == BRIDGE) {
        lines.push(format!("link add name {BRIDGE} type bridge"));
    }
    let tree = u8::from(part.has_loop);
    lines.extend([
        // Without a spanning tree, a port forwards at once. Times are in units of 10 ms.
        format!(
            "link set dev {BRIDGE} type bridge stp_state {tree} hello_time 100 max_age 600 \
             forward_delay 200"
        ),
        format!("address flush dev {BRIDGE}"),
    ]);
    for interface in &part.interfaces {
        let (name, mac, mtu) = (&interface.name, interface.mac, interface.mtu);
        lines.push(format!(
            "link set dev {name} address {mac} mtu {mtu} addrgenmode none master {BRIDGE} up"
        ));
    }
    lines.push(format!("link set dev {BRIDGE} up"));
    // All ports have the address of the bridge.
    if let Some(first) = part.interfaces.first() {
        lines.push(format!("address replace {} dev {BRIDGE}", first.address));
        let address6 = first.address6.iter();
        lines.extend(
            address6.map(|address6| format!("address replace {address6} dev {BRIDGE} nodad")),
        );
    }
    Ok(lines)
}
