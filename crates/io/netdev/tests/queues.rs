//! A TUN device of several queues, and its offloads, in a network namespace.
#![allow(missing_docs, clippy::unwrap_used)]

mod room;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use carina_netdev::{
    InterfaceAddresses, TAP_BURST, Tap, TapLayer, TapOffload, TapResult, VNET_HEADER_BYTES,
    bring_up,
};
use room::Room;

/// The tests judge nothing by this time; it only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

const ROUNDS: u8 = 8;
const SOCKETS: usize = 32;

const ALL: TapOffload = TapOffload {
    checksum: true,
    segmentation: true,
    datagrams: true,
};

fn open(room: &Room, count: usize) -> Option<Vec<Tap>> {
    if !std::path::Path::new("/dev/net/tun").exists() {
        println!("SKIP: /dev/net/tun (the kernel's module tun) does not exist");
        return None;
    }
    room.run(move || {
        let queues = Tap::open_queues("q0", TapLayer::Ip, ALL, count).unwrap();
        let mut addresses = InterfaceAddresses::of("q0").unwrap();
        addresses
            .add_address("10.9.1.1".parse().unwrap(), 24)
            .unwrap();
        addresses
            .add_address("fd00:9::1".parse().unwrap(), 64)
            .unwrap();
        bring_up("q0", Some(1400)).unwrap();
        Some(queues)
    })
}

/// Reads the UDP packets that wait in a queue.
fn read(tap: &mut Tap) -> Vec<Vec<u8>> {
    let mut headers = vec![[0; VNET_HEADER_BYTES]; TAP_BURST];
    let mut packets = vec![vec![0; 1 << 16]; TAP_BURST];
    let buffers = packets.iter_mut().map(Vec::as_mut_slice);
    let results: Vec<TapResult> = tap.read(headers.iter_mut().zip(buffers)).collect();
    let read = packets.into_iter().zip(results);
    read.filter_map(|(mut packet, result)| match result {
        TapResult::Done(bytes) => {
            packet.truncate(bytes);
            let protocol = if packet[0] >> 4 == 4 { 9 } else { 6 };
            (packet[protocol] == 17).then_some(packet)
        }
        TapResult::Later => None,
        other => panic!("{other:?}"),
    })
    .collect()
}

#[test]
fn packets_of_a_connection_stay_in_one_queue_and_in_order() {
    let Some(room) = Room::new() else { return };
    let Some(mut queues) = open(&room, 4) else {
        return;
    };
    if let Err(error) = queues[0].steer_by_flow() {
        return println!("SKIP: a BPF program for a TUN device: {error}");
    }
    room.run(|| {
        for family in [
            ["10.9.1.1:0", "10.9.1.2:9"],
            ["[fd00:9::1]:0", "[fd00:9::2]:9"],
        ] {
            let sockets: Vec<UdpSocket> = (0..SOCKETS)
                .map(|_| UdpSocket::bind(family[0]).unwrap())
                .collect();
            for round in 0..ROUNDS {
                for socket in &sockets {
                    socket.send_to(&[round], family[1]).unwrap();
                }
            }
        }
    });
    // By the port and the version: the queue, and the number of the last packet.
    let mut seen: BTreeMap<(u8, [u8; 2]), (usize, u8)> = BTreeMap::new();
    let mut count = 0;
    let patience = Instant::now() + PATIENCE;
    while count < 2 * SOCKETS * usize::from(ROUNDS) {
        assert!(Instant::now() < patience, "{count} packets");
        for (n, queue) in queues.iter_mut().enumerate() {
            for packet in read(queue) {
                let at = if packet[0] >> 4 == 4 { 20 } else { 40 };
                if packet[at + 2..at + 4] != [0, 9] {
                    continue;
                }
                let key = (packet[0] >> 4, [packet[at], packet[at + 1]]);
                let round = packet[packet.len() - 1];
                match seen.insert(key, (n, round)) {
                    None => assert_eq!(round, 0),
                    Some((queue, last)) => assert_eq!((n, round), (queue, last + 1)),
                }
                count += 1;
            }
        }
    }
    for version in [4, 6] {
        let mut of_version: Vec<usize> = seen
            .iter()
            .filter(|(key, _)| key.0 == version)
            .map(|(_, (queue, _))| *queue)
            .collect();
        of_version.sort_unstable();
        of_version.dedup();
        assert!(
            of_version.len() >= 3,
            "queues of version {version}: {of_version:?}"
        );
    }
}

#[test]
fn device_of_several_queues_is_not_shared_with_another_process() {
    let Some(room) = Room::new() else { return };
    let Some(queues) = open(&room, 2) else { return };
    room.run(|| {
        let again = Tap::open_queues("q0", TapLayer::Ip, ALL, 2);
        let error = again.unwrap_err().to_string();
        assert!(
            error.contains("has no queue for another process"),
            "{error}"
        );
        assert!(Tap::open("q0", TapLayer::Ip, ALL).is_err());
    });
    assert!(queues.iter().all(Tap::is_attached));
    assert!(queues.iter().all(|queue| queue.offload().checksum));
}
