//! Traffic between the kernel's stacks of two namespaces.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::room::Room;

/// Only bounds how long a test may hang; no assertion depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
pub(crate) const OWN: &str = "10.9.0.1";
pub(crate) const FAR: &str = "10.9.0.2";

fn socket(room: &Room, address: &'static str) -> UdpSocket {
    let socket = room.run(move || UdpSocket::bind((address, 0)).unwrap());
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket
}

/// Sends datagrams of several lengths from `own` to `far` and back, and repeats each until it
/// arrives: the first ones may be lost during address resolution.
pub(crate) fn udp_goes_both_ways(own: &Room, far: &Room) {
    let (near, peer) = (socket(own, OWN), socket(far, FAR));
    for length in [0, 1, 18, 512, 1472] {
        let message: Vec<u8> = (0..length).map(|n| n as u8).collect();
        for (from, to) in [(&near, &peer), (&peer, &near)] {
            exchange(from, to, &message);
        }
    }
}

fn exchange(from: &UdpSocket, to: &UdpSocket, message: &[u8]) {
    let end = Instant::now() + PATIENCE;
    let mut bytes = [0; 2000];
    loop {
        from.send_to(message, to.local_addr().unwrap()).unwrap();
        match to.recv(&mut bytes) {
            Ok(length) if bytes[..length] == *message => return,
            // A repeated earlier datagram.
            Ok(_) => {}
            Err(_) => assert!(Instant::now() < end, "nothing came"),
        }
    }
}

/// Sends `count` datagrams of 100 bytes, and returns how many arrive.
pub(crate) fn udp_burst(own: &Room, far: &Room, count: usize) -> usize {
    let (near, peer) = (socket(own, OWN), socket(far, FAR));
    exchange(&near, &peer, b"first");
    peer.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut bytes = [0; 200];
    let mut arrived = 0;
    for n in 0..count {
        near.send_to(&[n as u8; 100], peer.local_addr().unwrap())
            .unwrap();
        // Receives in between, because a socket's buffer holds only some hundred datagrams.
        if n % 64 < 63 && n + 1 < count {
            continue;
        }
        while arrived <= n {
            match peer.recv(&mut bytes) {
                Ok(100) => arrived += 1,
                // The first datagram, if it was sent twice.
                Ok(_) => {}
                Err(_) => return arrived,
            }
        }
    }
    arrived
}

/// Sends a megabyte by TCP, which the kernel passes on in long segments without checksums.
pub(crate) fn tcp_goes_through(own: &Room, far: &Room) {
    let listener = far.run(|| TcpListener::bind((FAR, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let expected = sent.clone();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == expected, "{} bytes arrived", received.len());
    });
    let mut stream = own.run(move || TcpStream::connect_timeout(&address, PATIENCE).unwrap());
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&sent).unwrap();
    drop(stream);
    reader.join().unwrap();
}
