//! Packets of several datagrams (UDP segmentation offload), and packets that the receiver joins.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use carina_ip::IpSettings;

use crate::room::Room;
use crate::support::{Pair, Running, System, eventually, settings, tcp_echo};

/// Bytes of a datagram, and number of datagrams in a packet.
const SIZE: usize = 1000;
const COUNT: usize = 20;

/// Sets an option of UDP sockets (udp(7)) to a number.
fn set_option(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) {
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is a local of the length given, which the kernel reads.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, value, bytes)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn receiver(room: &Room, address: &'static str) -> UdpSocket {
    let socket = room.run(move || UdpSocket::bind(address).unwrap());
    let limit = Some(Duration::from_secs(30));
    socket.set_read_timeout(limit).unwrap();
    socket
}

/// Sends a packet of [`COUNT`] datagrams, each with its number in all bytes.
fn send(room: &Room, source: &'static str, to: SocketAddr) {
    room.run(move || {
        let socket = UdpSocket::bind(source).unwrap();
        set_option(&socket, libc::UDP_SEGMENT, SIZE as libc::c_int);
        let bytes: Vec<u8> = (0..COUNT * SIZE).map(|n| (n / SIZE) as u8).collect();
        assert_eq!(socket.send_to(&bytes, to).unwrap(), bytes.len());
    });
}

fn expect_each(socket: &UdpSocket) {
    let mut datagram = [0; 2 * SIZE];
    for n in 0..COUNT {
        let (length, _) = socket.recv_from(&mut datagram).unwrap();
        assert_eq!((length, datagram[0]), (SIZE, n as u8));
        assert!(datagram[..length].iter().all(|byte| *byte == n as u8));
    }
}

fn cuts_datagrams(member: &Running) -> bool {
    let offloads = member.status().offloads;
    assert!(offloads.checksum && offloads.tso);
    if !offloads.uso {
        println!("SKIP: UDP segmentation by a TUN interface (Linux 6.2)");
    }
    offloads.uso
}

const ENDS: [(&str, &str); 2] = [
    ("10.9.1.1:0", "10.9.1.2:0"),
    ("[fd00:9::1]:0", "[fd00:9::2]:0"),
];

#[test]
fn datagrams_cross_shared_memory_whole() {
    let (Some(in_a), Some(in_b)) = (Room::new(), Room::new()) else {
        return;
    };
    let system = System::new("node.name = \"s\"\n");
    let of = |last: u8| IpSettings {
        tun: format!("ip{last}"),
        address: vec![
            format!("10.9.1.{last}/24").parse().unwrap(),
            format!("fd00:9::{last}/64").parse().unwrap(),
        ],
        ..settings("local", last)
    };
    let (a, b) = (system.member(&in_a, of(1)), system.member(&in_b, of(2)));
    for member in [&a, &b] {
        eventually("the other member is known", || {
            member.status().members.len() == 2
        });
    }
    if !cuts_datagrams(&a) || !cuts_datagrams(&b) {
        return;
    }
    for (source, address) in ENDS {
        let socket = receiver(&in_b, address);
        let to = socket.local_addr().unwrap();
        // The first travels while the flow is requested, the others over the open flow.
        for _ in 0..3 {
            send(&in_a, source, to);
            expect_each(&socket);
        }
        // A socket that asks for it gets the packet as it was sent.
        set_option(&socket, libc::UDP_GRO, 1);
        send(&in_a, source, to);
        let mut whole = vec![0; 1 << 16];
        let (length, _) = socket.recv_from(&mut whole).unwrap();
        assert_eq!((length, whole[length - 1]), (COUNT * SIZE, COUNT as u8 - 1));
    }
    let sent = a.counters();
    assert_eq!(sent.packets_cut, 0);
    let mean = sent.bytes_sent / sent.packets_sent;
    assert!(mean > 10 * SIZE as u64, "{mean} bytes a packet: {sent:?}");
}

#[test]
fn datagrams_are_cut_for_an_ethernet() {
    let Some(pair) = Pair::new() else { return };
    let [a, b] = pair.members();
    if !cuts_datagrams(&a) {
        return;
    }
    let [in_a, in_b] = &pair.rooms;
    for (source, address) in ENDS {
        let socket = receiver(in_b, address);
        let to = socket.local_addr().unwrap();
        for _ in 0..3 {
            send(in_a, source, to);
            expect_each(&socket);
        }
    }
    let sent = a.counters();
    assert!(sent.packets_cut >= 6, "{sent:?}");
    assert!(sent.packets_sent >= 6 * COUNT as u64, "{sent:?}");
    assert!(b.counters().packets_received >= 6 * COUNT as u64);
}

#[test]
fn segments_that_arrive_together_are_joined() {
    let Some(pair) = Pair::new() else { return };
    let [_a, b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    for address in ["10.9.1.2", "fd00:9::2"] {
        let before = b.counters().packets_joined;
        eventually("segments are joined", || {
            tcp_echo(in_a, in_b, address.parse().unwrap(), 1 << 20);
            b.counters().packets_joined > before
        });
    }
    let received = b.counters();
    assert!(received.packets_joined < received.packets_received);
    let dropped = serde_json::to_value(&received.dropped).unwrap();
    assert_eq!(dropped.get("kernel_refused"), None, "{received:?}");
}
