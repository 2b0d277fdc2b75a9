//! Members whose interface has several queues.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use carina_ip::{IpError, IpSettings};

use crate::room::Room;
use crate::support::{Running, System, echo_over, eventually, settings};

const QUEUES: usize = 3;
const SOCKETS: usize = 24;
const ROUNDS: u32 = 50;
const CONNECTIONS: usize = 12;

struct Queues {
    // Members end before the node, and this before the rooms.
    a: Running,
    b: Running,
    _system: System,
    rooms: [Room; 2],
}

impl Queues {
    fn new() -> Option<Queues> {
        let rooms = [Room::new()?, Room::new()?];
        if !std::path::Path::new("/dev/net/tun").exists() {
            println!("SKIP: /dev/net/tun (the kernel's module tun) does not exist");
            return None;
        }
        let system = System::new("node.name = \"s\"\n");
        let of = |last: u8| IpSettings {
            tun: format!("ip{last}"),
            queues: QUEUES,
            ..settings("local", last)
        };
        let a = system.member(&rooms[0], of(1));
        let b = system.member(&rooms[1], of(2));
        for member in [&a, &b] {
            eventually("the other member is known", || {
                member.status().members.len() == 1
            });
        }
        assert_eq!(a.status().queues, QUEUES);
        Some(Queues {
            a,
            b,
            _system: system,
            rooms,
        })
    }

    /// Number of flows on which a member sends or receives.
    fn flows(member: &Running, is_outgoing: bool) -> usize {
        let flows = member.status().flows;
        let flows = flows.iter().filter(|flow| flow.is_outgoing == is_outgoing);
        flows
            .filter(|flow| flow.is_open && flow.packets > 0)
            .count()
    }
}

#[test]
fn connections_share_the_queues_and_each_keeps_its_order() {
    let Some(queues) = Queues::new() else { return };
    let [in_a, in_b] = &queues.rooms;
    if !queues.a.status().is_steered {
        return println!("SKIP: a BPF program for a TUN device");
    }
    let receiver = in_b.run(|| UdpSocket::bind("10.9.1.2:0").unwrap());
    let limit = Some(Duration::from_secs(5));
    receiver.set_read_timeout(limit).unwrap();
    let to = receiver.local_addr().unwrap();
    let sockets = in_a.run(|| {
        let bind = |_| UdpSocket::bind("10.9.1.1:0").unwrap();
        (0..SOCKETS).map(bind).collect::<Vec<_>>()
    });
    let mut last: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    let sending = std::thread::spawn(move || {
        for round in 1..=ROUNDS {
            for socket in &sockets {
                // A datagram may be lost, but none overtakes another.
                let _ = socket.send_to(&round.to_be_bytes(), to);
            }
        }
        sockets
    });
    let mut datagram = [0; 4];
    let is_last = |last: &BTreeMap<SocketAddr, u32>| {
        last.len() == SOCKETS && last.values().all(|round| *round == ROUNDS)
    };
    while !is_last(&last)
        && let Ok((4, from)) = receiver.recv_from(&mut datagram)
    {
        let round = u32::from_be_bytes(datagram);
        let before = last.insert(from, round).unwrap_or(0);
        assert!(round > before, "{round} of {from} came after {before}");
    }
    drop(sending.join().unwrap());
    assert_eq!(last.len(), SOCKETS);
    eventually("every queue has a flow", || {
        let sends = Queues::flows(&queues.a, true);
        sends == QUEUES && Queues::flows(&queues.b, false) == QUEUES
    });
    eventually("the counters are those of all queues", || {
        let (sent, received) = (queues.a.counters(), queues.b.counters());
        sent.packets_sent >= SOCKETS as u64 && received.packets_received == sent.packets_sent
    });
}

#[test]
fn tcp_connections_pass_over_all_queues() {
    let Some(queues) = Queues::new() else { return };
    let [in_a, in_b] = &queues.rooms;
    let listener = in_b.run(|| TcpListener::bind("10.9.1.2:0").unwrap());
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let echo = |mut connection: TcpStream| {
            let mut copy = connection.try_clone().unwrap();
            std::io::copy(&mut connection, &mut copy).unwrap();
            copy.shutdown(std::net::Shutdown::Write).unwrap();
        };
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                let (connection, _) = listener.accept().unwrap();
                scope.spawn(move || echo(connection));
            }
        });
    });
    in_a.run(move || {
        std::thread::scope(|scope| {
            for n in 0..CONNECTIONS {
                scope.spawn(move || echo_over(address, n, 600_000));
            }
        });
    });
    server.join().unwrap();
    // A member's status follows its workers' counters a moment later.
    eventually("the connections have flows of several queues", || {
        Queues::flows(&queues.a, true) >= 2
    });
}

#[test]
fn removal_of_the_interface_ends_all_queues() {
    let Some(queues) = Queues::new() else { return };
    queues.rooms[0].ip("link delete ip1");
    assert!(matches!(queues.a.ended(), IpError::Removed(name) if name == "ip1"));
    queues.b.stop();
    let mut wrong = settings("n", 1);
    wrong.queues = 9;
    let error = wrong.check().unwrap_err().to_string();
    assert_eq!(error, "queues is 9; 1 to 8 would be right");
}
