//! A DIF over a DIF over each shim, with different field widths, and SDUs of every length.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::SocketAddr;

use carina_api::FlowSpec;
use carina_api::control::{DifCreate, DifRole, LinkState};
use carina_api::ipc::Mode;
use carina_engine::counters;
use serde_json::{Value, json};

use crate::room::Room;
use crate::support::members::{enrolled, routed};
use crate::support::pair::Pair;
use crate::support::*;

/// Two systems that are both in the DIF `base`. For a shim within one system, both are the same.
struct Place<'a> {
    near: &'a House,
    far: &'a House,
    base: &'static str,
}

impl Place<'_> {
    /// Creates a DIF over another, with a member on each side.
    fn dif(&self, name: &str, over: &str, config: Value) {
        let members = ["here", "there"].map(|side| format!("{name}.{side}"));
        let request = |role: DifRole, own: &str, config: Value| -> DifCreate {
            let (via, config) = match role {
                DifRole::Create => (Value::Null, config),
                DifRole::Join => (json!(members[0]), Value::Null),
            };
            let value = json!({
                "name": name, "role": role, "over": [over], "ipcp": own, "via": via, "config": config,
            });
            serde_json::from_value(value).unwrap()
        };
        let first = request(DifRole::Create, &members[0], config);
        self.near.control().create_dif(&first).unwrap();
        enrolled(self.near, &members[0]);
        let second = request(DifRole::Join, &members[1], Value::Null);
        self.far.control().create_dif(&second).unwrap();
        enrolled(self.far, &members[1]);
    }

    fn width(&self, name: &str, field: &str) -> u64 {
        let objects = self.far.control().rib(Some(name), None, "/dif", 0).unwrap();
        objects[0].fields[field].as_u64().unwrap()
    }

    /// Creates two DIFs, one over the other, with different field widths.
    fn two_levels(&self) {
        let wide = json!({ "widths": { "address": 8, "cep": 4, "qos": 2, "seq": 8, "length": 4 } });
        let narrow = json!({ "widths": { "address": 1, "cep": 1, "seq": 2, "ctrl_seq": 2 } });
        self.dif("lower", self.base, wide);
        self.dif("upper", "lower", narrow);
        for (name, address, seq) in [("lower", 8, 8), ("upper", 1, 2)] {
            assert_eq!(self.width(name, "address_bytes"), address, "{name}");
            assert_eq!(self.width(name, "seq_bytes"), seq, "{name}");
        }
        for name in ["lower", "upper"] {
            self.carries(name, "reliable", FlowSpec::reliable());
            self.carries(name, "controlled", flow_controlled());
        }
    }

    /// Checks that SDUs of every length arrive complete and in order, in both directions. `sink`
    /// must be a new name: a name registered before stays known until the other side learns of its
    /// end.
    fn carries(&self, name: &str, sink: &str, spec: FlowSpec) {
        let server = self.near.conn();
        server.register(sink, Some(name)).unwrap();
        eventually("the name is known", || {
            let difs = self.far.control().difs().unwrap();
            let found = difs.iter().find(|found| found.name == dif(name));
            found.is_some_and(|found| found.names.contains(&app(sink)))
        });
        routed(self.far, name, &format!("{name}.here"));
        let caller = self.far.conn();
        caller.ask_with(sink, Some(name), spec, Mode::Ring);
        let asked = server.flow_request_of(&caller);
        server.accept(asked.request, Mode::Ring);
        let (mut theirs, mut mine) = (server.flow(), caller.flow());
        pass(&mut mine, &mut theirs, name);
        pass(&mut theirs, &mut mine, name);
    }
}

fn pass(writer: &mut Taken, reader: &mut Taken, name: &str) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (n, bytes) in LENGTHS.into_iter().enumerate() {
                writer.send_in_pieces(&content(bytes, n as u64), PIECE);
            }
        });
        for (n, bytes) in LENGTHS.into_iter().enumerate() {
            let got = reader.recv_whole().unwrap();
            assert_eq!(got.len(), bytes, "SDU {n} in {name}");
            assert!(got == content(bytes, n as u64), "SDU {n} in {name}");
        }
    });
}

fn flow_controlled() -> FlowSpec {
    FlowSpec {
        in_order: true,
        ..FlowSpec::unreliable()
    }
}

/// Lengths around that of a piece and of a frame, and one longer than the ring.
const LENGTHS: [usize; 12] = [
    0,
    1,
    2,
    1_399,
    1_500,
    8_000,
    8_001,
    40_000,
    65_536,
    65_537,
    300_000,
    1 << 20,
];

/// A piece that is at most an eighth of the ring.
const PIECE: usize = 8_000;

#[test]
fn two_difs_over_the_loopback_shim() {
    let house = House::new("media-lo", "");
    let place = Place {
        near: &house,
        far: &house,
        base: "local",
    };
    place.two_levels();
}

#[test]
fn two_difs_over_the_shim_for_hypervisors() {
    let pair = Pair::new("media-hv", "");
    let place = Place {
        near: &pair.host,
        far: &pair.guest,
        base: "hv.x",
    };
    place.two_levels();
}

/// Two processes or containers of one host: no VM and no device, only a socket that both can
/// access.
#[test]
fn two_difs_over_virtqueues_without_a_vm() {
    let scratch = Scratch::new("media-queues");
    let socket = scratch.0.join("vmpi");
    let host = format!(
        "[[vm]]\nname = \"c\"\ndif = \"hv.x\"\nvmpi = \"virtqueue\"\nsocket = {socket:?}\n"
    );
    let guest = format!(
        "[[ipcp]]\nname = \"hv0\"\ntype = \"hv\"\nside = \"guest\"\ndif = \"hv.x\"\n\
         socket = {socket:?}\n"
    );
    // The connecting node may start first.
    let far = House::new("media-queues-guest", &guest);
    let near = House::new("media-queues-host", &host);
    up(&near);
    up(&far);
    let port = near.control().vm("c").unwrap();
    assert_eq!(port.listen_socket.as_deref(), Some(&*socket));
    assert_eq!(port.qemu_args, [""; 0]);
    let place = Place {
        near: &near,
        far: &far,
        base: "hv.x",
    };
    place.two_levels();
}

#[test]
fn sockets_of_the_vmpi_are_for_virtqueues_alone() {
    let house = House::new("media-queues-refused", "");
    let refusal = |keys: Value| {
        let mut value = json!({ "name": "c", "socket": "/nowhere/c" });
        value
            .as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        let create = serde_json::from_value(value).unwrap();
        house.control().create_vm(&create).unwrap_err().to_string()
    };
    let message = refusal(json!({ "vmpi": "ivshmem" }));
    assert!(
        message.contains("`socket` belongs to `vmpi = \"virtqueue\"`"),
        "{message}"
    );
    let message = refusal(json!({ "vmpi": "virtqueue" }));
    assert!(message.contains("/nowhere/c"), "{message}");
    let both = json!({
        "name": "hv0", "type": "hv", "dif": "x", "side": "guest",
        "pci": "0000:00:04.0", "socket": "/nowhere/c",
    });
    let both = serde_json::from_value(both).unwrap();
    let message = house.control().create_ipcp(&both).unwrap_err().to_string();
    assert!(
        message.contains("two of `pci`, `socket` and `vsock` are given"),
        "{message}"
    );
}

#[test]
fn two_difs_over_udp() {
    over_ip("udp", "sdu_max = 1400\n", "");
}

#[test]
fn two_difs_over_tcp() {
    over_ip("tcp", "", "");
}

fn over_ip(kind: &str, keys: &str, node: &str) {
    let [near, far] = addresses();
    let house = |side: &str, own: SocketAddr, peers: &[&str], other: SocketAddr| {
        let peer = |name: &&str| format!("{{ name = \"{name}\", address = \"{other}\" }}");
        let peers: Vec<String> = peers.iter().map(peer).collect();
        let toml = format!(
            "{node}[[ipcp]]\nname = \"e\"\ntype = \"{kind}\"\ndif = \"inet\"\nlisten = \"{own}\"\n\
             peers = [{}]\n{keys}",
            peers.join(", ")
        );
        House::new(&format!("media-{kind}{}-{side}", node.len()), &toml)
    };
    let names = ["lower", "lower.here", "lower.there"];
    let (a, b) = (house("a", near, &names, far), house("b", far, &names, near));
    up(&a);
    up(&b);
    let place = Place {
        near: &a,
        far: &b,
        base: "inet",
    };
    place.two_levels();
}

/// Puts both DIFs and the shim on different workers than their N-1 DIFs.
const ACROSS: &str = "node.workers = 2\n\
    node.placement = { shim = 0, e = 0, \"lower.here\" = 1, \"lower.there\" = 1, \
    \"upper.here\" = 0, \"upper.there\" = 0 }\n";

#[test]
fn two_difs_across_workers_over_the_shim_for_hypervisors() {
    let pair = Pair::new("media-workers", ACROSS);
    let place = Place {
        near: &pair.host,
        far: &pair.guest,
        base: "hv.x",
    };
    place.two_levels();
    crossed(&pair.host);
}

#[test]
fn two_difs_whose_members_in_one_system_are_on_two_workers() {
    let placement = "node.workers = 2\n\
        node.placement = { \"lower.here\" = 0, \"lower.there\" = 1, \
        \"upper.here\" = 1, \"upper.there\" = 0 }\n";
    let house = House::new("media-one-workers", placement);
    let place = Place {
        near: &house,
        far: &house,
        base: "local",
    };
    place.two_levels();
    crossed(&house);
}

#[test]
fn two_difs_across_workers_over_udp() {
    over_ip("udp", "sdu_max = 1400\n", ACROSS);
}

/// Checks that N-1 flows of the house cross from worker to worker.
fn crossed(house: &House) {
    let rows = counters::read(&house.dir().path().join("counters")).unwrap();
    let halves = rows.iter().filter(|row| row.name.contains(" to ipcp "));
    assert!(halves.count() > 0, "{rows:?}");
}

fn up(house: &House) {
    eventually("the shim is up", || {
        let ipcps = house.control().ipcps().unwrap();
        ipcps.iter().all(|ipcp| ipcp.state == LinkState::Up)
    });
}

#[test]
fn two_difs_over_ethernet() {
    over_ethernet("packet", "interface = \"INTERFACE\"\ndif = \"10\"\n");
}

#[test]
fn two_difs_over_ports_past_the_kernels_stack() {
    let port = "port = { kind = \"af_xdp\", interface = \"INTERFACE\" }\ndif = \"DIF\"\n";
    for dif in ["lan", "10"] {
        over_ethernet("xdp", &port.replace("DIF", dif));
    }
}

fn over_ethernet(name: &'static str, keys: &str) {
    let (Some(left), Some(right)) = (Room::new(), Room::new()) else {
        return;
    };
    left.join("va", &right, "vb", 1500);
    let house = |room: &Room, side: &'static str| {
        let keys = keys.replace("INTERFACE", &format!("v{side}"));
        room.run(move || {
            let toml = format!("[[ipcp]]\nname = \"e\"\ntype = \"eth\"\n{keys}");
            House::new(&format!("media-{name}-{side}"), &toml)
        })
    };
    let (mut a, mut b) = (house(&left, "a"), house(&right, "b"));
    up(&a);
    up(&b);
    let base = if keys.contains("lan") { "lan" } else { "10" };
    let place = Place {
        near: &a,
        far: &b,
        base,
    };
    place.two_levels();
    // The threads of the nodes live in the namespaces, so the nodes stop first.
    a.node.take();
    b.node.take();
}
