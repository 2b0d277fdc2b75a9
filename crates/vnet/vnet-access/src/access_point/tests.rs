//! Tests of access points and users' ends that exchange datagrams without a network.

use std::collections::VecDeque;

use carina_wire::inet::{PROTOCOL_ICMP, checksum};
use proptest::prelude::*;

use super::echo::put_checksum;
use super::*;
use crate::refusal::{Refusal, Refused};
use crate::user_end::{UserEnd, UserSink};
use carina_vnet::access::Right;

/// What an access point has sent.
#[derive(Default)]
struct Out {
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    packets: Vec<Vec<u8>>,
    requests: Vec<(u32, PublicKey, Request)>,
}

impl Sink for Out {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        self.datagrams.push_back((to, datagram.to_vec()));
        true
    }

    fn deliver(&mut self, packet: &[u8]) -> bool {
        self.packets.push(packet.to_vec());
        true
    }

    fn request(&mut self, (index, _): (u32, IpAddr), key: PublicKey, request: Request) -> bool {
        self.requests.push((index, key, request));
        true
    }
}

#[derive(Default)]
struct UserOut {
    datagrams: Vec<Vec<u8>>,
    packets: Vec<Vec<u8>>,
    replies: Vec<Reply>,
}

impl UserSink for UserOut {
    fn send(&mut self, datagram: &[u8]) {
        self.datagrams.push(datagram.to_vec());
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.packets.push(packet.to_vec());
    }

    fn hear(&mut self, reply: Reply) {
        self.replies.push(reply);
    }
}

/// A user's system.
struct User {
    key: PrivateKey,
    from: SocketAddr,
    address: Ipv4Addr,
    end: UserEnd,
    out: UserOut,
}

impl User {
    fn new(number: u8, point: &Point) -> User {
        let key = PrivateKey::of([number; 32]);
        let address = Ipv4Addr::new(10, 128, 0, number);
        User {
            end: UserEnd::new(&key, point.key, POINT_AT.parse().unwrap(), Some(address)),
            key,
            from: SocketAddr::from(([198, 51, 100, number], 1000)),
            address,
            out: UserOut::default(),
        }
    }

    fn config(&self) -> PeerConfig {
        PeerConfig {
            key: self.key.public(),
            address: self.address,
            rate_bps: 1_000_000_000,
            passage: Passage::of(&[Right::Ip].into(), NODE),
        }
    }

    /// Makes the user's end send a packet, even one that it may not send.
    fn send(&mut self, packet: &[u8]) {
        let own = Ipv4Header::decode(packet).map(|header| Ipv4Addr::from(header.source));
        assert_eq!(own.unwrap(), self.address);
        assert!(self.end.handle_packet(packet, &mut self.out));
    }
}

struct Point {
    key: PublicKey,
    machine: AccessPoint,
    out: Out,
    now: Instant,
}

impl Point {
    fn new(number: u8) -> Point {
        let key = PrivateKey::of([number; 32]);
        Point {
            key: key.public(),
            machine: AccessPoint::new(&key, OWN, 1420),
            out: Out::default(),
            now: Instant::ZERO,
        }
    }

    fn take(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.machine
            .handle_datagram(self.now, from, datagram, &mut self.out);
    }

    /// Exchanges datagrams between the access point and a user until none is left.
    fn talk(&mut self, user: &mut User) {
        for _ in 0..100 {
            for datagram in std::mem::take(&mut user.out.datagrams) {
                self.take(user.from, &datagram);
            }
            let Some((to, datagram)) = self.out.datagrams.pop_front() else {
                break;
            };
            assert_eq!(to, user.from);
            user.end
                .handle_datagram(POINT_AT.parse().unwrap(), &datagram, &mut user.out);
        }
    }

    fn release(&mut self) -> Option<Instant> {
        self.machine.release(self.now, &mut self.out)
    }

    fn discards(&mut self) -> Vec<(Discard, u64)> {
        self.machine.take_discards().collect()
    }
}

const POINT_AT: &str = "192.0.2.1:51820";
const OWN: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 2);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);

/// A UDP packet with `payload` bytes of payload.
fn udp(from: Ipv4Addr, to: Ipv4Addr, payload: usize) -> Vec<u8> {
    let mut packet = vec![0; 28 + payload];
    let length = packet.len() as u16;
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    put_checksum(&mut packet[..20], 10);
    packet
}

#[test]
fn users_packets_pass_both_ways() {
    let mut point = Point::new(100);
    let mut alice = User::new(3, &point);
    point.machine.set_peers(&[alice.config()]);
    let packet = udp(alice.address, NODE, 100);
    alice.send(&packet);
    point.talk(&mut alice);
    assert_eq!(point.out.packets, [packet]);
    let back = udp(NODE, alice.address, 50);
    point
        .machine
        .handle_packet(point.now, &back, &mut point.out);
    point.talk(&mut alice);
    assert_eq!(alice.out.packets, [back]);
    let seen: Vec<PeerSeen> = point.machine.seen().map(|(_, seen)| seen).collect();
    assert_eq!((seen[0].sent_bytes, seen[0].received_bytes), (128, 78));
    assert_eq!(
        (seen[0].from, seen[0].handshake_s),
        (Some(alice.from), Some(0))
    );
    assert_eq!(point.discards(), []);
}

#[test]
fn guest_can_ask_and_nothing_else() {
    let mut point = Point::new(100);
    let mut guest = User::new(3, &point);
    guest.send(&udp(guest.address, NODE, 10));
    point.talk(&mut guest);
    assert_eq!(point.out.packets.len(), 0);
    assert_eq!(point.discards(), [(Discard::Guest, 1)]);
    let request = Request::Join("token".to_owned());
    guest.end.ask(&request, &mut guest.out);
    point.talk(&mut guest);
    let (index, key, asked) = point.out.requests.remove(0);
    assert_eq!((key, asked), (guest.key.public(), request));
    let reply = Reply::Refused(Refused::new(Refusal::Used, "it was used"));
    point.machine.reply(index, &reply, &mut point.out);
    point.talk(&mut guest);
    assert_eq!(guest.out.replies, [reply]);
    // The guest's session ends because the guest does nothing with it.
    point.now += GUEST_TIME;
    point.machine.tick(point.now, &mut point.out);
    guest
        .end
        .ask(&Request::Join("token".to_owned()), &mut guest.out);
    point.talk(&mut guest);
    assert_eq!(point.discards(), [(Discard::Session, 1)]);
}

#[test]
fn system_with_the_access_points_own_key_is_discarded() {
    let mut point = Point::new(100);
    let mut twin = User::new(100, &point);
    twin.send(&udp(twin.address, OWN, 10));
    point.talk(&mut twin);
    assert_eq!(point.discards(), [(Discard::OwnKey, 1)]);
}

#[test]
fn guests_are_bounded_and_users_come_in_nevertheless() {
    let mut point = Point::new(200);
    for number in 1..=GUESTS_MAX as u8 + 3 {
        let mut guest = User::new(number, &point);
        guest
            .end
            .ask(&Request::Join("x".to_owned()), &mut guest.out);
        point.talk(&mut guest);
    }
    assert_eq!(point.out.requests.len(), GUESTS_MAX);
    assert_eq!(point.discards(), [(Discard::Guests, 3)]);
    let mut alice = User::new(150, &point);
    point.machine.set_peers(&[alice.config()]);
    alice.send(&udp(alice.address, NODE, 10));
    point.talk(&mut alice);
    assert_eq!(point.out.packets.len(), 1);
}

#[test]
fn strange_sources_and_destinations_are_discarded() {
    let mut point = Point::new(100);
    let mut alice = User::new(3, &point);
    // A packet that the user's end would refuse to send; therefore this end has another address.
    let bob = Ipv4Addr::new(10, 128, 0, 4);
    let other = UserEnd::new(&alice.key, point.key, POINT_AT.parse().unwrap(), Some(bob));
    point.machine.set_peers(&[alice.config()]);
    alice.end = other;
    alice.end.handle_packet(&udp(bob, NODE, 9), &mut alice.out);
    point.talk(&mut alice);
    assert_eq!(point.discards(), [(Discard::Source, 1)]);
    alice.end = User::new(3, &point).end;
    for to in ["224.0.0.5", "255.255.255.255", "169.254.0.1"] {
        // A second system with the key of the first one. Its handshakes have later timestamps.
        alice.send(&udp(alice.address, to.parse().unwrap(), 9));
    }
    point.talk(&mut alice);
    let group: u64 = point
        .discards()
        .iter()
        .filter(|discard| discard.0 == Discard::Group)
        .map(|discard| discard.1)
        .sum();
    assert_eq!(group, 3);
    for (packet, reason) in [
        (udp(NODE, bob, 9), Discard::NoUser),
        (udp(NODE, "224.0.0.1".parse().unwrap(), 9), Discard::Group),
        (udp(NODE, OWN, 9), Discard::Group),
        (udp(NODE, alice.address, 1393), Discard::Length),
        (vec![0x60; 40], Discard::NotIpv4),
    ] {
        point
            .machine
            .handle_packet(point.now, &packet, &mut point.out);
        assert_eq!(point.discards(), [(reason, 1)]);
    }
    assert_eq!(point.out.packets.len(), 0);
}

#[test]
fn rate_bounds_both_ways_and_each_user_alone() {
    let mut point = Point::new(100);
    let (mut alice, mut bob) = (User::new(3, &point), User::new(4, &point));
    let mut configs = [alice.config(), bob.config()];
    // At this rate one packet passes at once, and 24 wait.
    configs[0].rate_bps = 8_000;
    point.machine.set_peers(&configs);
    for user in [&mut alice, &mut bob] {
        for _ in 0..30 {
            user.send(&udp(user.address, NODE, 972));
        }
        point.talk(user);
    }
    let of = |from: Ipv4Addr| move |packet: &&Vec<u8>| packet[12..16] == from.octets();
    let passed = |point: &Point, from| point.out.packets.iter().filter(of(from)).count();
    assert_eq!(
        (passed(&point, alice.address), passed(&point, bob.address)),
        (1, 30)
    );
    assert!(point.release().is_some());
    assert_eq!(point.discards(), [(Discard::RateUp, 5)]);
    for to in [alice.address, bob.address] {
        for _ in 0..30 {
            point
                .machine
                .handle_packet(point.now, &udp(NODE, to, 972), &mut point.out);
        }
    }
    assert_eq!(point.out.datagrams.len(), 31);
    point.release();
    assert_eq!(point.discards(), [(Discard::RateDown, 5)]);
    // A byte per millisecond passes: within 10 s ten packets each way.
    for _ in 0..1000 {
        point.now += Duration::from_millis(10);
        point.release();
    }
    assert_eq!(passed(&point, alice.address), 11);
    assert_eq!(point.out.datagrams.len(), 41);
    let seen: BTreeMap<PublicKey, PeerSeen> = point.machine.seen().collect();
    let seen = &seen[&alice.key.public()];
    assert_eq!((seen.sent_bytes, seen.received_bytes), (11_000, 11_000));
    // Packets that wait for a user who leaves count; CoDel has dropped some before.
    point.machine.set_peers(&configs[1..]);
    let discards = point.discards();
    let reasons: Vec<Discard> = discards.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(
        reasons,
        [Discard::RateUp, Discard::RateDown, Discard::NoUser]
    );
    assert_eq!(discards.iter().map(|(_, count)| count).sum::<u64>(), 28);
    assert!(point.release().is_none());
}

#[test]
fn user_who_is_cut_hears_it_and_gets_nothing_more() {
    let mut point = Point::new(100);
    let mut alice = User::new(3, &point);
    point.machine.set_peers(&[alice.config()]);
    alice.send(&udp(alice.address, NODE, 10));
    point.talk(&mut alice);
    let news = Reply::Refused(Refused::new(Refusal::Revoked, "it was revoked"));
    point
        .machine
        .tell(alice.key.public(), &news, &mut point.out);
    point.talk(&mut alice);
    assert_eq!(alice.out.replies, [news]);
    point.machine.set_peers(&[]);
    point.out.packets.clear();
    alice.send(&udp(alice.address, NODE, 10));
    point.talk(&mut alice);
    point
        .machine
        .handle_packet(point.now, &udp(NODE, alice.address, 9), &mut point.out);
    assert_eq!(point.out.packets.len() + point.out.datagrams.len(), 0);
    assert_eq!(
        point.discards(),
        [(Discard::Session, 1), (Discard::NoUser, 1)]
    );
    assert!(!point.machine.answers_for(alice.address) && point.machine.answers_for(OWN));
}

#[test]
fn own_address_answers_echos() {
    let mut point = Point::new(100);
    let mut echo = udp(NODE, OWN, 16);
    echo[9] = PROTOCOL_ICMP;
    echo[20..22].copy_from_slice(&[8, 0]);
    put_checksum(&mut echo[..20], 10);
    put_checksum(&mut echo[20..], 2);
    point
        .machine
        .handle_packet(point.now, &echo, &mut point.out);
    let reply = point.out.packets.remove(0);
    let header = Ipv4Header::decode(&reply).unwrap();
    assert_eq!(
        (header.source, header.destination),
        (OWN.octets(), NODE.octets())
    );
    assert_eq!((reply[20], checksum(&reply[20..], 0)), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Two networks with the same addresses and users, and datagrams that are sent to the wrong
    /// network.
    #[test]
    fn user_of_one_network_never_reaches_another(
        steps in proptest::collection::vec((0usize..2, 0usize..3, 0usize..2, 0usize..60), 1..60)
    ) {
        let mut points = [Point::new(100), Point::new(101)];
        let mut users: Vec<Vec<User>> = (0..2usize).map(|net| {
            (3..6).map(|number| {
                let mut user = User::new(number + 50 * net as u8, &points[net]);
                user.address = Ipv4Addr::new(10, 128, 0, number);
                let (key, at) = (points[net].key, POINT_AT.parse().unwrap());
                user.end = UserEnd::new(&user.key, key, at, Some(user.address));
                user
            }).collect()
        }).collect();
        for net in 0..2 {
            let configs: Vec<PeerConfig> = users[net].iter().map(User::config).collect();
            points[net].machine.set_peers(&configs);
        }
        for (net, user, to, size) in steps {
            let user = &mut users[net][user];
            // The payload contains the number of the network that it comes from.
            let mut packet = udp(user.address, NODE, 2 + size);
            packet[28] = net as u8 + 1;
            user.send(&packet);
            for datagram in &user.out.datagrams {
                points[to].take(user.from, datagram);
            }
            points[net].talk(user);
            while let Some((_, datagram)) = points[to].out.datagrams.pop_front() {
                for other in &mut users[1 - to] {
                    other.end.handle_datagram(POINT_AT.parse().unwrap(), &datagram, &mut other.out);
                    prop_assert_eq!(other.out.packets.len(), 0);
                }
            }
        }
        for (net, point) in points.iter().enumerate() {
            for packet in &point.out.packets {
                prop_assert_eq!(usize::from(packet[28]), net + 1);
            }
        }
    }

    #[test]
    fn nothing_comes_of_arbitrary_datagrams(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0u8..6,
    ) {
        let mut point = Point::new(100);
        let alice = User::new(3, &point);
        point.machine.set_peers(&[alice.config()]);
        let mut datagram = vec![kind, 0, 0, 0];
        datagram.extend(bytes);
        point.take(alice.from, &datagram);
        let discards = point.discards();
        prop_assert_eq!(discards.len(), 1);
        prop_assert_eq!(point.out.packets.len() + point.out.datagrams.len(), 0);
    }
}
