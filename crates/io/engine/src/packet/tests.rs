//! Tests of packets as payloads of a protocol machine.

use carina_ring::WakeMode;
use carina_ring::channel::{ChannelMemory, Endpoint, Side};
use carina_wire::Payload;

use super::*;

fn ring() -> [Endpoint; 2] {
    let memory = ChannelMemory::create(65_536).unwrap();
    [Side::A, Side::B].map(|side| memory.endpoint(side, WakeMode::Fence).unwrap())
}

/// A packet whose contents are in a ring.
fn leased(ends: &mut [Endpoint; 2], bytes: &[u8]) -> Packet {
    ends[0].tx.push(&[bytes], false).unwrap();
    ends[0].publish();
    Packet::from_lease(ends[1].rx.next().unwrap().unwrap(), false)
}

fn pool() -> Pool {
    let pool = Pool::new(1 << 20);
    pool.serve_thread();
    pool
}

fn bytes(packet: &Packet) -> Vec<u8> {
    let mut to = Vec::new();
    packet.append_to(&mut to);
    let mut same = vec![0; to.len() + 1];
    assert_eq!(packet.copy_prefix(&mut same), to.len());
    assert_eq!(same[..to.len()], to[..]);
    to
}

#[test]
fn headers_of_many_layers_go_on_and_come_off() {
    let (pool, mut ends) = (pool(), ring());
    let mut packet = leased(&mut ends, b"payload");
    let mut expected = b"payload".to_vec();
    for layer in 0..9_u8 {
        let header = [layer; 40];
        assert!(packet.prepend(&header));
        expected.splice(..0, header);
        assert_eq!(bytes(&packet), expected);
    }
    Payload::truncate(&mut packet, 9 * 40 + 3);
    packet.advance(9 * 40 - 1);
    assert_eq!(bytes(&packet), b"\0pay");
    packet.advance(99);
    assert!(packet.is_empty());
    drop(packet);
    assert_eq!(pool.bytes_out(), 0);
}

#[test]
fn a_kept_packet_survives_its_ring() {
    let (_pool, mut ends) = (pool(), ring());
    let mut packet = leased(&mut ends, &[1; 100]);
    assert!(packet.prepend(b"header"));
    assert!(packet.keep());
    ends[1].release();
    for _ in 0..700 {
        ends[0].tx.push(&[&[2; 80]], false).unwrap();
    }
    assert_eq!(bytes(&packet), [b"header".to_vec(), vec![1; 100]].concat());
}

#[test]
fn second_handle_to_kept_bytes_is_independent_without_copy() {
    let (pool, mut ends) = (pool(), ring());
    let mut packet = leased(&mut ends, &[7; 1400]);
    assert!(packet.keep());
    let out = pool.bytes_out();
    let mut twin = packet.share().unwrap();
    assert_eq!(pool.bytes_out(), out, "nothing was copied");
    assert!(twin.prepend(b"one") && packet.prepend(b"two"));
    let mut third = twin.share().unwrap();
    assert!(third.prepend(b">"));
    third.advance(4);
    assert_eq!(bytes(&twin)[..4], *b"one\x07");
    assert_eq!(bytes(&packet)[..4], *b"two\x07");
    assert_eq!(bytes(&third), [7; 1400]);
    drop((packet, twin, third));
    assert_eq!(pool.bytes_out(), 0);
}

#[test]
fn without_a_buffer_the_packet_says_so() {
    let mut ends = ring();
    Pool::new(300).serve_thread();
    let mut packet = leased(&mut ends, &[7; 1400]);
    assert!(!packet.keep());
    assert!(packet.prepend(&[1; 60]) && packet.prepend(&[2; 60]));
    assert!(!packet.prepend(&[3; 60]), "the room for headers is used up");
    assert_eq!(packet.len(), 1520);
    assert_eq!(bytes(&packet)[..61], [vec![2; 60], vec![1]].concat());
    assert!(Packet::from_vec(vec![1; 400]).is_none());
}

#[test]
fn a_packet_grows_to_its_capacity_and_gives_unused_room_back() {
    let pool = Pool::new(1 << 20);
    pool.serve_thread();
    let mut batch = <Packet as Payload>::with_capacity(60_000).unwrap();
    assert!(batch.is_empty());
    assert!(batch.extend(b"one, "));
    let two = Packet::copy_of(b"two", &pool).unwrap();
    assert!(batch.extend_with(&two));
    let large = pool.bytes_out();
    batch.fit();
    assert!(pool.bytes_out() < large - 60_000, "room is given back");
    let mut bytes = Vec::new();
    Packet::append_to(&batch, &mut bytes);
    assert_eq!(bytes, b"one, two");
    let room = vec![0; 4_000];
    assert!(!batch.extend(&room), "there is no room for that any more");
    assert_eq!(batch.len(), 8);
    assert!(batch.prepend(b"header: "));
    assert_eq!(self::bytes(&batch), b"header: one, two");
}

#[test]
fn headers_alone_can_be_cut_and_shared() {
    let (pool, mut ends) = (pool(), ring());
    let mut packet = leased(&mut ends, b"");
    assert!(packet.prepend(b"0123456789"));
    Payload::truncate(&mut packet, 4);
    let mut twin = packet.share().unwrap();
    twin.advance(1);
    assert!(twin.prepend(b"ab"));
    assert_eq!(
        (bytes(&packet), bytes(&twin)),
        (b"0123".to_vec(), b"ab123".to_vec())
    );
    drop((packet, twin));
    assert_eq!(pool.bytes_out(), 0);
}
