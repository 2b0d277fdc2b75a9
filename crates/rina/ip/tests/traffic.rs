//! Packets of the kernel between members.

use carina_api::control::Client;
use carina_ip::{Class, IpSettings};

use crate::room::Room;
use crate::support::{Pair, Running, System, eventually, settings, tcp_echo, udp_echo};

#[test]
fn tcp_and_udp_pass_both_ways_in_both_versions() {
    let Some(pair) = Pair::new() else { return };
    let [a, b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    for (client, server, address) in [
        (in_a, in_b, "10.9.1.2"),
        (in_b, in_a, "10.9.1.1"),
        (in_a, in_b, "fd00:9::2"),
    ] {
        tcp_echo(client, server, address.parse().unwrap(), 2 << 20);
    }
    let source = "10.9.1.1:0".parse().unwrap();
    assert!(udp_echo(in_a, in_b, source, "10.9.1.2".parse().unwrap()));
    let status = a.status();
    // No packet needs more than one PDU of the Ethernet, and segments are cut for it.
    assert!((1280..1500).contains(&status.mtu), "{}", status.mtu);
    assert!(status.counters.packets_cut > 0, "{:?}", status.counters);
    let received = b.counters();
    let bytes_sent = status.counters.bytes_sent;
    assert!(received.bytes_received <= bytes_sent && bytes_sent > 4 << 20);
    // One flow for each version and direction.
    let outgoing = status.flows.iter().filter(|flow| flow.is_outgoing);
    assert_eq!(outgoing.count(), 2, "{:?}", status.flows);
    assert!(status.flows.iter().all(|flow| flow.is_open));
}

/// Two members that know each other, over shared memory of their node.
fn members_of_one_system(system: &System, [in_a, in_b]: [&Room; 2]) -> [Running; 2] {
    let a = system.member(in_a, settings("local", 1));
    let of_b = IpSettings {
        tun: "ip1".to_owned(),
        ..settings("local", 2)
    };
    let b = system.member(in_b, of_b);
    for member in [&a, &b] {
        eventually("the other member is known", || {
            member.status().members.len() == 1
        });
    }
    [a, b]
}

#[test]
fn segments_cross_shared_memory_whole() {
    let (Some(in_a), Some(in_b)) = (Room::new(), Room::new()) else {
        return;
    };
    let system = System::new("node.name = \"s\"\n");
    let [a, _b] = members_of_one_system(&system, [&in_a, &in_b]);
    tcp_echo(&in_a, &in_b, "10.9.1.2".parse().unwrap(), 16 << 20);
    let sent = a.counters();
    assert_eq!(sent.packets_cut, 0);
    let mean = sent.bytes_sent / sent.packets_sent;
    assert!(
        mean > a.status().mtu as u64,
        "{mean} bytes a packet: {sent:?}"
    );
}

#[test]
fn on_one_processor_the_receiving_worker_precedes() {
    let (Some(in_a), Some(in_b)) = (Room::new(), Room::new()) else {
        return;
    };
    if carina_sys::precede_others().is_none() {
        return println!("SKIP: a lower nice value needs CAP_SYS_NICE");
    }
    in_b.run(|| {
        let cpus = carina_sys::allowed_cpus().unwrap();
        carina_sys::pin_to_cpu(cpus[0]).unwrap();
    });
    let system = System::new("node.name = \"s\"\n");
    let _members = members_of_one_system(&system, [&in_a, &in_b]);
    tcp_echo(&in_a, &in_b, "10.9.1.2".parse().unwrap(), 16 << 20);
    // It gives precedence up with the first packet after the stream.
    eventually("the worker precedes others", || {
        tcp_echo(&in_a, &in_b, "10.9.1.2".parse().unwrap(), 1 << 20);
        nice_values().contains(&-10)
    });
}

/// The nice values of the threads of this process.
fn nice_values() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let nice = |stat: String| -> Option<i32> {
        // Field 19 of proc_pid_stat(5). Field 2, a name in brackets, may have spaces.
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(16)?
            .parse()
            .ok()
    };
    stats.filter_map(nice).collect()
}

#[test]
fn idle_flow_is_given_back_and_made_again() {
    let Some(pair) = Pair::new() else { return };
    let of = |last| IpSettings {
        idle_ms: 400,
        ..settings("n", last)
    };
    let a = pair.systems[0].member(&pair.rooms[0], of(1));
    let b = pair.systems[1].member(&pair.rooms[1], of(2));
    for member in [&a, &b] {
        eventually("the other member is known", || {
            member.status().members.len() == 1
        });
    }
    let [in_a, in_b] = &pair.rooms;
    for _ in 0..2 {
        let source = "10.9.1.1:0".parse().unwrap();
        assert!(udp_echo(in_a, in_b, source, "10.9.1.2".parse().unwrap()));
        for member in [&a, &b] {
            eventually("no flow is left", || member.status().flows.is_empty());
        }
    }
    assert_eq!(a.counters().flows_requested, 2);
}

#[test]
fn classes_of_packets_have_flows_of_their_own() {
    let Some(pair) = Pair::new() else { return };
    let [a, _b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    assert!(in_b.ip("route show"));
    in_a.run(|| {
        let socket = std::net::UdpSocket::bind("10.9.1.1:0").unwrap();
        for dscp in [0_u8, 46, 8] {
            rustix::net::sockopt::set_ip_tos(&socket, dscp << 2).unwrap();
            socket.send_to(b"hello", "10.9.1.2:9").unwrap();
        }
    });
    eventually("each class has a flow", || {
        let flows = a.status().flows;
        let has = |class| {
            flows
                .iter()
                .any(|flow| flow.class == Some(class) && flow.packets == 1)
        };
        has(Class::Default) && has(Class::LowDelay) && has(Class::Background)
    });
}

#[test]
fn interface_and_routes_end_with_the_member() {
    let Some(pair) = Pair::new() else { return };
    let with_route = IpSettings {
        route: vec!["10.30.0.0/16".parse().unwrap()],
        ..settings("n", 1)
    };
    let room = &pair.rooms[0];
    let member = pair.systems[0].member(room, with_route);
    room.ip("route get 10.30.1.1");
    room.ip("link show ip0");
    member.stop();
    room.run(|| {
        assert!(!carina_netdev::interface_exists("ip0"));
        let routes = std::fs::read_to_string("/proc/thread-self/net/route").unwrap();
        assert!(!routes.contains("ip0"), "{routes}");
    });
}

#[test]
fn configured_interface_follows_what_is_applied() {
    let Some(room) = Room::new() else { return };
    room.run(|| {
        let system = System::new("node.name = \"s\"\n");
        let control = Client::new(system.run().control_sock());
        let ip = |address: &str| {
            format!("[[ip]]\ndif = \"local\"\ntun = \"ip0\"\naddress = [\"{address}/24\"]\n")
        };
        for address in ["10.9.1.1", "10.9.1.3"] {
            control.apply(&ip(address)).unwrap();
            eventually("the interface is up", || {
                std::net::UdpSocket::bind((address, 0)).is_ok()
                    && carina_ip::read_all(&system.run()).unwrap().len() == 1
            });
        }
        assert!(std::net::UdpSocket::bind("10.9.1.1:0").is_err());
        control.apply("").unwrap();
        eventually("the interface is removed", || {
            !carina_netdev::interface_exists("ip0")
        });
        // The threads of the node end before those of the room.
        drop(system);
    });
}
