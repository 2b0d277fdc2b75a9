//! Writes a network of RFC 8345 with the addresses of RFC 8346. Each link becomes two, because
//! links have one direction (RFC 8345, section 4.2).

use serde_json::{Value, json};

use super::{address, address6, end};
use carina_vnet::report::{LinkReport, NodeReport, VnetReport};

pub(super) fn write(report: &VnetReport) -> String {
    let nodes: Vec<Value> = report.nodes.iter().map(node).collect();
    let links = report.links.iter();
    let links: Vec<Value> = links
        .flat_map(|part| [link(part, 0), link(part, 1)])
        .collect();
    let network = json!({
        "network-id": report.name,
        "network-types": { "ietf-l3-unicast-topology:l3-unicast-topology": {} },
        "node": nodes,
        "ietf-network-topology:link": links,
    });
    let whole = json!({ "ietf-network:networks": { "network": [network] } });
    format!("{whole:#}\n")
}

fn node(node: &NodeReport) -> Value {
    let points = node.interfaces.iter().map(|interface| {
        let addresses: Vec<&str> = std::iter::once(address(interface))
            .chain(address6(interface))
            .collect();
        json!({
            "tp-id": interface.name,
            "ietf-l3-unicast-topology:l3-termination-point-attributes": {
                "ip-address": addresses,
            },
        })
    });
    json!({
        "node-id": node.name,
        "ietf-network-topology:termination-point": points.collect::<Vec<Value>>(),
    })
}

fn link(link: &LinkReport, side: usize) -> Value {
    let ((from, out), (to, into)) = (end(link, side), end(link, 1 - side));
    json!({
        "link-id": format!("{}:{}", link.number, link.ends[side]),
        "source": { "source-node": from, "source-tp": out },
        "destination": { "dest-node": to, "dest-tp": into },
    })
}
