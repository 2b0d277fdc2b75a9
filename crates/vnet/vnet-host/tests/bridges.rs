//! Tests networks with bridges as nodes.

use carina_vnet::trace::{Act, TraceQuery};

use crate::network::TestNetwork;
use crate::waiting::is_root;

const EXAMPLE: &str = include_str!("../../../../examples/vnets/switched.toml");

#[test]
fn hosts_on_joined_bridges_are_on_one_segment() {
    if !is_root() {
        return;
    }
    let network = TestNetwork::ready(EXAMPLE);
    // h1 knows h3 by its MAC address: no node between them routes.
    network.passes("h1", "10.64.0.3");
    let neighbours = network.run("h1", "ip neighbour show 10.64.0.3");
    let own = network.run("h3", "ip -br link show dev eth0");
    let own = own.split_whitespace().nth(2).unwrap();
    assert!(neighbours.contains(own), "{neighbours} {own}");
    let learned = network.run("s1", "bridge fdb show br br0");
    assert!(learned.contains(own), "{learned}");
    let route = network.run("h1", "ip route get 10.0.0.22");
    assert!(route.contains("via 10.64.0.4"), "{route}");

    // A trace crosses both bridges, to a host of the segment and to one behind the router.
    for (to, path) in [
        ("h3", "h1:eth0 s1:eth0 s2:eth1 h3:eth0 s2:eth0 s1:eth1"),
        (
            "outside",
            "h1:eth0 s1:eth0 s2:eth2 r:eth1 outside:eth0 r:eth0 s2:eth0 s1:eth1",
        ),
    ] {
        let query = TraceQuery {
            from: "h1".into(),
            to: to.into(),
            echoes: 2,
        };
        let trace = network.agent().trace("switched", &query).unwrap();
        let expected = trace.places.iter().filter(|place| place.is_expected);
        let sent = expected.filter(|place| place.act == Act::Sends);
        let ends: Vec<&str> = sent.map(|place| place.end.as_str()).collect();
        assert_eq!(ends.join(" "), path, "{trace:?}");
    }

    // A host more; the others keep their addresses.
    let more = format!(
        "{EXAMPLE}[node.h4]\n[[link]]\nends = [\"h4\", \"s1\"]\nrate = \"1Gbps\"\nas = \"vxlan\"\n\
         [[test]]\nping = [\"h4\", \"outside\"]\n"
    );
    network.apply(&more);
    let addresses = network.run("h3", "ip -o address show dev eth0");
    assert!(addresses.contains("10.64.0.3/21"), "{addresses}");
    network.passes("h4", "10.64.0.3");

    // The network is restored as it was.
    network.save_and_restore();
    network.passes("h4", "10.64.0.3");
    network.remove();
}

#[test]
fn ring_of_bridges_has_a_spanning_tree() {
    if !is_root() {
        return;
    }
    let ring =
        format!("{EXAMPLE}[[link]]\nends = [\"s1\", \"s2\"]\nrate = \"1Gbps\"\nas = \"gre\"\n");
    let network = TestNetwork::ready(&ring);
    let tree = network.run("s2", "ip -d link show dev br0");
    assert!(tree.contains("stp_state 1"), "{tree}");
    network.remove();
}
