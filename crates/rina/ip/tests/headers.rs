//! What a member carries of a packet's header, and fragments.

use std::net::UdpSocket;
use std::time::Duration;

use carina_ip::Class;
use rustix::net::sockopt::{Timeout, set_ip_tos, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket};

use crate::support::Pair;

#[test]
fn traffic_class_and_congestion_bits_arrive_as_they_were_sent() {
    let Some(pair) = Pair::new() else { return };
    let [a, _b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    // DSCP EF with ECT(0), LE with ECT(1), CS1 with CE, the default without ECN.
    let fields = [46 << 2 | 2, 1 << 2 | 1, 8 << 2 | 3, 0];
    // A raw socket receives packets with their headers.
    let receiver = in_b.run(|| {
        let kind = (AddressFamily::INET, SocketType::RAW);
        socket(kind.0, kind.1, Some(ipproto::UDP)).unwrap()
    });
    let limit = Some(Duration::from_secs(30));
    set_socket_timeout(&receiver, Timeout::Recv, limit).unwrap();
    for field in fields {
        in_a.run(move || {
            let socket = UdpSocket::bind("10.9.1.1:0").unwrap();
            set_ip_tos(&socket, field).unwrap();
            socket.send_to(&[field], "10.9.1.2:9").unwrap();
        });
        let mut packet = [0; 64];
        let (length, _) = recv(&receiver, &mut packet, RecvFlags::empty()).unwrap();
        assert_eq!((packet[1], packet[length - 1]), (field, field));
    }
    let flows = a.status().flows;
    for class in [Class::Default, Class::LowDelay, Class::Background] {
        let of_class = flows.iter().filter(|flow| flow.class == Some(class));
        assert_eq!(of_class.count(), 1, "{class:?}: {flows:?}");
    }
}

#[test]
fn fragments_of_a_datagram_are_put_together_by_the_receiver() {
    let Some(pair) = Pair::new() else { return };
    let [_a, _b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    let receiver = in_b.run(|| UdpSocket::bind("10.9.1.2:0").unwrap());
    receiver
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let address = receiver.local_addr().unwrap();
    in_a.run(move || {
        let socket = UdpSocket::bind("10.9.1.1:0").unwrap();
        socket.send_to(&[9; 20_000], address).unwrap();
    });
    let mut datagram = vec![0; 65_536];
    let (length, _) = receiver.recv_from(&mut datagram).unwrap();
    assert!(length == 20_000 && datagram[..length].iter().all(|byte| *byte == 9));
}
