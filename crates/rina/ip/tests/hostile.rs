//! What a member does with packets of others that it must not take, and with a kernel that changes
//! the interface.

use carina_api::FlowSpec;
use carina_client::{Flow, name};
use carina_ip::{Counters, IpError};

use crate::support::{Pair, System, eventually, settings, tcp_echo, udp_echo};

fn dropped(counters: &Counters, reason: &str) -> u64 {
    let json = serde_json::to_value(&counters.dropped).unwrap();
    json.get(reason)
        .and_then(|count| count.as_u64())
        .unwrap_or(0)
}

/// A packet of IPv4 without payload.
fn packet(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0];
    packet.extend(source);
    packet.extend(destination);
    packet
}

fn intrude(system: &System, local: &str) -> Result<Flow, carina_client::Error> {
    let dif = carina_api::DifName::new("n").unwrap();
    let (local, remote) = (name(local).unwrap(), name("ip:10.9.1.2/32").unwrap());
    let spec = FlowSpec::flow_controlled();
    system.client().allocate(&local, &remote, Some(&dif), &spec)
}

#[test]
fn spoofed_sources_and_garbage_are_dropped_and_counted() {
    let Some(pair) = Pair::new() else { return };
    let [a, b] = pair.members();
    let own = [10, 9, 1, 2];
    // Another application registers a prefix and sends what it must not.
    let client = pair.systems[0].client();
    let dif = carina_api::DifName::new("n").unwrap();
    let _registered = client
        .register(&name("ip:10.9.1.66/32").unwrap(), Some(&dif))
        .unwrap();
    let mut flow = intrude(&pair.systems[0], "ip:10.9.1.66/32").unwrap();
    for source in [[10, 9, 1, 1], [10, 9, 1, 2], [8, 8, 8, 8]] {
        flow.send(&packet(source, own)).unwrap();
    }
    flow.send(&packet([10, 9, 1, 66], [10, 9, 1, 1])).unwrap();
    flow.send(&packet([10, 9, 1, 66], own)[..19]).unwrap();
    flow.send(&[0; 9]).unwrap();
    flow.send(&[0xff; 1000]).unwrap();
    flow.send(&vec![0x45; 70_000]).unwrap();
    flow.send(&packet([10, 9, 1, 66], own)).unwrap();
    eventually("the packets are judged", || {
        let counters = b.counters();
        dropped(&counters, "source_not_peers") == 3
            && dropped(&counters, "destination_not_own") == 1
            && dropped(&counters, "bad_sdu") == 4
            && counters.packets_received >= 1
    });
    // A name that is no prefix, one of the callee, and one without a registration.
    for caller in ["web", "ip:10.9.1.2/32", "ip:10.9.1.77/32"] {
        assert!(intrude(&pair.systems[0], caller).is_err(), "{caller}");
    }
    let [in_a, in_b] = &pair.rooms;
    tcp_echo(in_a, in_b, "10.9.1.2".parse().unwrap(), 1 << 20);
    // The kernel of a member cannot spoof either.
    in_a.ip("address add 10.9.1.7/32 dev lo");
    let spoofed = "10.9.1.7:0".parse().unwrap();
    assert!(!udp_echo(in_a, in_b, spoofed, "10.9.1.2".parse().unwrap()));
    assert!(dropped(&a.counters(), "source_not_own") >= 1);
}

#[test]
fn scan_of_a_link_requests_no_flow() {
    let Some(pair) = Pair::new() else { return };
    let [a, _b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    in_a.run(|| {
        let socket = std::net::UdpSocket::bind("10.9.1.1:0").unwrap();
        for last in 3..255 {
            let _ = socket.send_to(b"scan", (std::net::Ipv4Addr::new(10, 9, 1, last), 9));
        }
    });
    eventually("the scan is dropped", || {
        dropped(&a.counters(), "no_member") >= 250
    });
    assert_eq!(a.counters().flows_requested, 0);
    tcp_echo(in_a, in_b, "10.9.1.2".parse().unwrap(), 1 << 20);
}

#[test]
fn unknown_destination_is_unreachable_at_once() {
    let Some(pair) = Pair::new() else { return };
    let [a, _b] = pair.members();
    pair.rooms[0].run(|| {
        for address in ["10.9.1.77:9", "[fd00:9::77]:9"] {
            let error = std::net::TcpStream::connect(address).unwrap_err();
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::HostUnreachable,
                "{address}"
            );
        }
    });
    assert!(a.counters().errors_sent >= 2);
}

#[test]
fn interface_may_go_down_but_its_removal_ends_the_member() {
    let Some(pair) = Pair::new() else { return };
    let [a, b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    let ask = || {
        let source = "10.9.1.1:0".parse().unwrap();
        udp_echo(in_a, in_b, source, "10.9.1.2".parse().unwrap())
    };
    assert!(ask());
    in_b.ip("link set ip0 down");
    in_a.run(|| {
        let socket = std::net::UdpSocket::bind("10.9.1.1:0").unwrap();
        socket.send_to(b"lost", "10.9.1.2:9").unwrap();
    });
    eventually("the packet is dropped", || {
        dropped(&b.counters(), "interface_down") >= 1
    });
    in_b.ip("link set ip0 up");
    assert!(ask());
    in_a.ip("link delete ip0");
    assert!(matches!(a.ended(), IpError::Removed(name) if name == "ip0"));
}

#[test]
fn wrong_settings_are_refused_with_what_would_be_right() {
    let mut wrong = settings("n", 1);
    wrong.mtu = Some(100);
    let error = wrong.check().unwrap_err().to_string();
    assert_eq!(error, "mtu is 100; 576 to 65535 would be right");
    let system = System::new("node.name = \"s\"\n");
    let unknown = settings("nowhere", 1);
    let started = carina_ip::Member::start(system.client(), &system.run(), unknown);
    let error = started.unwrap_err().to_string();
    assert_eq!(error, "this system is in no DIF nowhere; it is in: local");
}
