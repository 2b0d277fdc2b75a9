//! Three members, of which two reach each other through the node of the third.
//!
//! ```text
//!   a 10.9.1.1 -- Ethernet -- b 10.9.1.2 -- Ethernet -- c 10.9.1.3, and 10.30.0.0/16 behind c
//! ```

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use carina_ip::IpSettings;

use crate::room::Room;
use crate::support::{Running, System, eventually, settings, tcp_echo, udp_echo};

struct Line {
    // Members end before the nodes, and these before the rooms.
    members: Vec<Running>,
    _systems: Vec<System>,
    rooms: [Room; 3],
}

impl Line {
    fn new() -> Option<Line> {
        let rooms = [Room::new()?, Room::new()?, Room::new()?];
        if !std::path::Path::new("/dev/net/tun").exists() {
            println!("SKIP: /dev/net/tun (the kernel's module tun) does not exist");
            return None;
        }
        rooms[0].join("ab", &rooms[1], "ba", 1500);
        rooms[1].join("bc", &rooms[2], "cb", 1500);
        let interfaces = [&["ab"][..], &["ba", "bc"], &["cb"]];
        let mut systems = Vec::new();
        for (n, room) in rooms.iter().enumerate() {
            let mut toml = format!("node.name = \"{}\"\n", ["a", "b", "c"][n]);
            let mut over = Vec::new();
            for interface in interfaces[n] {
                let dif = if interface.contains('a') {
                    "lan1"
                } else {
                    "lan2"
                };
                over.push(format!("\"{dif}\""));
                toml += &format!(
                    "[[ipcp]]\nname = \"e{dif}\"\ntype = \"eth\"\ndif = \"{dif}\"\ninterface = \
                     \"{interface}\"\n"
                );
            }
            let role = if n == 0 { "create" } else { "join" };
            let over = over.join(", ");
            toml += &format!("[[dif]]\nname = \"n\"\nrole = \"{role}\"\nover = [{over}]\n");
            systems.push(room.run(move || System::new(&toml)));
        }
        let members = (0..3).map(|n| {
            let mut own = settings("n", n as u8 + 1);
            if n == 2 {
                own.prefix = vec!["10.30.0.0/16".parse().unwrap()];
            }
            own.route = vec!["10.30.0.0/16".parse().unwrap()];
            if n == 2 {
                own.route.clear();
            }
            systems[n].member(&rooms[n], own)
        });
        let members: Vec<Running> = members.collect();
        for (n, member) in members.iter().enumerate() {
            let count = if n == 2 { 2 } else { 3 };
            eventually("all prefixes are known", || {
                member.status().members.len() == count
            });
        }
        Some(Line {
            members,
            _systems: systems,
            rooms,
        })
    }
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 1, last).into()
}

#[test]
fn every_member_of_a_mesh_reaches_every_other() {
    let Some(line) = Line::new() else { return };
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            let (client, server) = (&line.rooms[from], &line.rooms[to]);
            tcp_echo(client, server, address(to as u8 + 1), 300_000);
        }
    }
    // A network behind a member: the longest prefix decides who gets the packet.
    line.rooms[2].ip("address add 10.30.0.1/16 dev lo");
    tcp_echo(
        &line.rooms[0],
        &line.rooms[2],
        "10.30.0.1".parse().unwrap(),
        300_000,
    );
    let source = "10.9.1.2:0".parse().unwrap();
    assert!(udp_echo(
        &line.rooms[1],
        &line.rooms[2],
        source,
        "10.30.0.1".parse().unwrap()
    ));
    let flows = line.members[0].status().flows;
    let sends = flows.iter().filter(|flow| flow.is_outgoing).count();
    assert_eq!(sends, 3, "one flow for each prefix: {flows:?}");
}

#[test]
fn packets_that_two_members_send_each_other_in_a_loop_end() {
    let Some(line) = Line::new() else { return };
    // b routes the prefix of c to c, and c routes what it does not have back.
    let [_, in_b, in_c] = &line.rooms;
    in_c.ip("route add 10.30.9.0/24 dev ip0");
    in_c.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    in_b.run(|| {
        let socket = UdpSocket::bind("10.9.1.2:0").unwrap();
        for _ in 0..100 {
            let _ = socket.send_to(b"round", "10.30.9.1:9");
        }
    });
    // c has registered the prefix, so that its own packets there have no other member.
    let reasons = |member: &Running| serde_json::to_value(member.counters().dropped).unwrap();
    eventually("c drops the packets", || {
        let dropped = reasons(&line.members[2]);
        dropped.as_object().is_some_and(|all| !all.is_empty())
    });
    tcp_echo(in_b, in_c, address(3), 300_000);
}

#[test]
fn scan_of_100000_addresses_behind_a_member_needs_one_flow() {
    let Some(line) = Line::new() else { return };
    let [in_a, in_b, _] = &line.rooms;
    in_a.run(|| {
        let socket = UdpSocket::bind("10.9.1.1:0").unwrap();
        for n in 0..100_000_u32 {
            // c has registered 10.30.0.0/16; no member has the other addresses.
            let target = match n % 2 {
                0 => Ipv4Addr::from_bits(0x0a1e_0000 + n / 2),
                _ => Ipv4Addr::new(10, 9, 1, 4 + (n / 2 % 250) as u8),
            };
            let _ = socket.send_to(b"scan", (target, 9));
        }
    });
    let status = line.members[0].status();
    assert!(
        status.counters.flows_requested <= 2,
        "{:?}",
        status.counters
    );
    // Others are undisturbed.
    tcp_echo(in_a, in_b, address(2), 300_000);
    tcp_echo(in_b, &line.rooms[2], address(3), 300_000);
}

#[test]
fn member_with_peers_knows_only_these() {
    let Some(line) = Line::new() else { return };
    let narrow = IpSettings {
        tun: "ip1".to_owned(),
        peers: vec!["10.9.1.1/32".parse().unwrap()],
        ..settings("n", 9)
    };
    let narrow = line._systems[1].member(&line.rooms[1], narrow);
    eventually("one member is known", || {
        !narrow.status().members.is_empty()
    });
    assert_eq!(narrow.status().members, ["10.9.1.1/32".parse().unwrap()]);
}
