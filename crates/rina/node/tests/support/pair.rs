//! Two nodes in one process, joined through a VMPI region like a VM and its host.

use std::net::SocketAddr;

use carina_api::LocalName;
use carina_api::control::LinkState;
use carina_api::ipc::Mode;
use carina_vmpi::hl::Side;
use carina_vmpi::ll::memfd::MemfdRegion;

use super::*;

/// A host and a guest.
pub(crate) struct Pair {
    pub host: House,
    pub guest: House,
    pub region: MemfdRegion,
}

impl Pair {
    pub(crate) fn new(name: &str, toml: &str) -> Self {
        Self::with(name, [toml; 2])
    }

    /// Starts host and guest with these configurations.
    pub(crate) fn with(name: &str, toml: [&str; 2]) -> Self {
        let named = |name: &str, toml: &str| format!("node.name = \"{name}\"\n{toml}");
        let host = House::new(&format!("{name}-h"), &named("host", toml[0]));
        let guest = House::new(&format!("{name}-g"), &named("guest", toml[1]));
        let region = MemfdRegion::create(1 << 20).unwrap();
        let pair = Self {
            host,
            guest,
            region,
        };
        pair.attach(&pair.host, Side::Host);
        pair.attach(&pair.guest, Side::Guest);
        pair.wait_up();
        pair
    }

    /// A host and a guest, joined by `hv.x` and by `wire`, a UDP shim DIF.
    pub(crate) fn doubly_joined(name: &str, sdu_max: usize) -> Pair {
        let [host, guest] = addresses();
        let house = |side: &str, own: SocketAddr, other: SocketAddr| {
            let peer = |name: &str| format!("{{ name = \"{name}\", address = \"{other}\" }}");
            let peers: Vec<String> = ["net", "net.host", "net.guest"].map(peer).into();
            let toml = format!(
                "node.name = \"{side}\"\n[[ipcp]]\nname = \"u\"\ntype = \"udp\"\ndif = \"wire\"\n\
                 listen = \"{own}\"\nsdu_max = {sdu_max}\npeers = [{}]\n",
                peers.join(", ")
            );
            House::new(&format!("{name}-{side}"), &toml)
        };
        let pair = Pair {
            host: house("host", host, guest),
            guest: house("guest", guest, host),
            region: MemfdRegion::create(1 << 20).unwrap(),
        };
        pair.attach(&pair.host, Side::Host);
        pair.attach(&pair.guest, Side::Guest);
        pair.wait_up();
        pair
    }

    pub(crate) fn attach(&self, house: &House, side: Side) {
        let name = LocalName::new("shim").unwrap();
        let device = self.region.device(side).unwrap();
        house
            .node
            .as_ref()
            .unwrap()
            .attach(name, dif("hv.x"), device)
            .unwrap();
    }

    pub(crate) fn wait_up(&self) {
        for house in [&self.host, &self.guest] {
            eventually("the link is up", || {
                house
                    .control()
                    .ipcps()
                    .unwrap()
                    .iter()
                    .all(|i| i.state == LinkState::Up)
            });
        }
    }

    /// Registers a name at the host, and waits until the guest knows it.
    pub(crate) fn register(&self, name: &str) -> Conn {
        let conn = self.host.register(name);
        eventually("the name is known at the peer", || {
            let apps = self.guest.control().apps().unwrap();
            apps.iter()
                .any(|app| app.name.as_str() == name && app.via.is_some())
        });
        conn
    }

    pub(crate) fn flow(&self, modes: [Mode; 2]) -> (Conn, Taken, Taken) {
        let server = self.register("echo");
        let caller = self.guest.conn();
        caller.ask_with("echo", None, FlowSpec::reliable(), modes[0]);
        let request = server.flow_request();
        assert_eq!(request.dif.as_str(), "hv.x");
        assert_eq!(request.remote.as_str(), "caller");
        server.accept(request.request, modes[1]);
        let theirs = server.flow();
        (server, caller.flow(), theirs)
    }
}
