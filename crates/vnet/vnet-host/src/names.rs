//! Names of a network's things on a host. Each contains the uid, or is inside a namespace whose
//! name does.

use carina_vnet::host_part::{EndPart, HostPart, InterfacePart, VnetId};

/// The namespace of a network's ports, in which its engine runs.
#[must_use]
pub fn ports_namespace(vnet: VnetId) -> String {
    format!("cv-{vnet}")
}

/// Name of the network namespace that a namespace node is.
#[must_use]
pub fn node_namespace(vnet: VnetId, node: &str) -> String {
    format!("cv-{vnet}-{node}")
}

/// Whether `namespace` is the name of a namespace that belongs to network `vnet`.
#[must_use]
pub fn is_of(vnet: VnetId, namespace: &str) -> bool {
    let rest = namespace.strip_prefix(ports_namespace(vnet).as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Name of the port of a link's end. Side 0 is the near end. Side 1 is the far end; it has a port
/// here only if it is on this host.
#[must_use]
pub fn port(link: u32, side: usize) -> String {
    format!("l{link}.{side}")
}

/// The link end at which a node's interface is: the link's number and the side.
#[must_use]
pub fn end_of(part: &HostPart, node: &str, interface: &InterfacePart) -> (u32, usize) {
    let link = part.link(interface.link);
    let is_near = |end: &EndPart| end.node == node && end.interface == interface.name;
    let side = link.map_or(0, |link| usize::from(!is_near(&link.near)));
    (interface.link, side)
}

/// Name of the app for the port of a link's end.
#[must_use]
pub fn port_app(link: u32, side: usize) -> String {
    format!("l{link}-{side}")
}

/// Name of the app that limits the rate of frames from a port.
#[must_use]
pub fn rate_app(link: u32, side: usize) -> String {
    format!("l{link}-{side}-rate")
}

/// Name of the app that impairs frames from a port.
#[must_use]
pub fn impair_app(link: u32, side: usize) -> String {
    format!("l{link}-{side}-impair")
}

/// The number of the link to which an app of the engine belongs, by the app's name. `None` for an
/// app that serves several links.
#[must_use]
pub fn link_of_app(app: &str) -> Option<u32> {
    app.strip_prefix('l')?.split_once('-')?.0.parse().ok()
}

/// Name of the app for the tunnel of a link to another host.
#[must_use]
pub fn tunnel_app(link: u32) -> String {
    format!("l{link}-tunnel")
}

/// Name of the app for the flow of a link to another host.
#[must_use]
pub fn flow_app(link: u32) -> String {
    format!("l{link}-flow")
}

/// Name of the app that answers the node's ARP requests if the tunnel carries no Ethernet.
#[must_use]
pub fn arp_app(link: u32) -> String {
    format!("l{link}-arp")
}

/// Name of the app for the access point of a link.
#[must_use]
pub fn access_app(link: u32) -> String {
    format!("l{link}-access")
}

/// Name of the app for the physical card of a link.
#[must_use]
pub fn card_app(link: u32) -> String {
    format!("l{link}-card")
}

/// Name of the app that distributes the underlay's packets among tunnels.
pub const MUX_APP: &str = "underlay-mux";

/// Name of the app for the underlay's interface.
pub const UNDERLAY_APP: &str = "underlay";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn apps_name_the_links_to_which_they_belong() {
        let apps = [
            port_app(7, 1),
            port_app(7, 0) + "b",
            rate_app(7, 0),
            impair_app(7, 1),
            tunnel_app(7),
            flow_app(7),
            arp_app(7),
            access_app(7),
            card_app(7),
        ];
        assert!(apps.iter().all(|app| link_of_app(app) == Some(7)));
        let others = [MUX_APP, UNDERLAY_APP, "lo-0", "7-0"];
        assert!(others.iter().all(|app| link_of_app(app).is_none()));
    }

    #[test]
    fn namespaces_of_other_networks_are_strangers() {
        let (this, other) = (VnetId::new(1), VnetId::new(2));
        for namespace in [ports_namespace(this), node_namespace(this, "a-b")] {
            assert!(is_of(this, &namespace) && !is_of(other, &namespace));
        }
        assert!(!is_of(this, "carina-lab-a"));
        assert!(!is_of(this, &format!("{}0", ports_namespace(this))));
    }

    #[test]
    fn node_knows_the_ports_of_its_interfaces() {
        let part = part(&["a b", "c b"]);
        let ports = |node: &str| -> Vec<String> {
            let interfaces = &part.node(node).unwrap().interfaces;
            let port_of = |end| {
                let (link, side) = end_of(&part, node, end);
                port(link, side)
            };
            interfaces.iter().map(port_of).collect()
        };
        assert_eq!(
            (ports("a"), ports("c")),
            (vec!["l0.0".into()], vec!["l1.0".into()])
        );
        assert_eq!(ports("b"), ["l0.1", "l1.1"]);
    }
}
