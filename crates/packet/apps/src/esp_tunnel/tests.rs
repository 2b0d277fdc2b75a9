//! Tests of packets through a tunnel and back, of every length, over both IP versions.

use carina_frame::{Pool, PoolConfig};
use carina_wire::inet::checksum;

use super::*;
use crate::congestion::set_class;

fn pool() -> Pool {
    let (frames, frame_bytes) = (8, 2048);
    Pool::new(PoolConfig {
        frames,
        frame_bytes,
    })
    .unwrap()
}

fn config(ends: [&str; 2]) -> EspTunnelConfig {
    EspTunnelConfig {
        local: ends[0].parse().unwrap(),
        remote: ends[1].parse().unwrap(),
        hop_limit: 64,
        mac: None,
        next_mac: None,
        transmit_spi: 0x1234,
        transmit_key: SecretHex::new([7; 16]),
        transmit_salt: SecretHex::new([1; 4]),
        receive_spi: 0x4321,
        receive_key: SecretHex::new([8; 16]),
        receive_salt: SecretHex::new([2; 4]),
        extended: true,
        resync_threshold: 3,
        resync_attempts: 8,
    }
}

/// The configuration of the other end.
fn turned(config: &EspTunnelConfig) -> EspTunnelConfig {
    EspTunnelConfig {
        local: config.remote,
        remote: config.local,
        transmit_spi: config.receive_spi,
        transmit_key: config.receive_key,
        transmit_salt: config.receive_salt,
        receive_spi: config.transmit_spi,
        receive_key: config.transmit_key,
        receive_salt: config.transmit_salt,
        ..config.clone()
    }
}

/// An IPv4 or IPv6 frame with this traffic class and `payload` bytes of payload.
fn packet(version: u8, class: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 14];
    match version {
        4 => {
            frame[12..].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
            let mut header = [0; 20];
            (header[0], header[1], header[8], header[9]) = (0x45, class, 64, 17);
            header[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
            let sum = checksum(&header, 0);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        }
        _ => {
            frame[12..].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
            let mut header = [0; 40];
            (header[0], header[6], header[7]) = (0x60, 17, 64);
            header[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
            set_class(&mut header, class);
            frame.extend(header);
        }
    }
    frame.extend((0..payload).map(|number| number as u8));
    frame
}

const ENDS: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];

#[test]
fn packets_of_every_length_come_back_as_they_were() {
    let pool = pool();
    for ends in ENDS {
        let near = config(ends);
        let far = turned(&near);
        let (outer, back) = (near.outer().unwrap(), far.outer().unwrap());
        let (mut sender, mut receiver) = (
            near.transmit().sender(5).unwrap(),
            far.receive().receiver(far.search()).unwrap(),
        );
        for length in 0..70 {
            for version in [4, 6] {
                let whole = packet(version, 0xb9, length);
                let padded = [&whole[..], &[0xee; 9]].concat();
                let mut frame = pool.frame_of(&padded).unwrap();
                protect(&outer, &mut sender, &mut frame).unwrap();
                assert_eq!(class_of(&frame.bytes()[14..]), 0xb9);
                assert!(back.unwrap(frame.bytes()).is_ok());
                let came = open(&back, &mut receiver, &mut frame);
                assert_eq!(came, Ok(Came::Packet(Opened::InStep)));
                assert_eq!(frame.bytes(), whole);
            }
        }
    }
}

#[test]
fn changed_repeated_and_foreign_packets_are_refused() {
    let pool = pool();
    for ends in ENDS {
        let near = config(ends);
        let far = turned(&near);
        let (outer, back) = (near.outer().unwrap(), far.outer().unwrap());
        let (mut sender, mut receiver) = (
            near.transmit().sender(5).unwrap(),
            far.receive().receiver(far.search()).unwrap(),
        );
        let mut frame = pool.frame_of(&packet(4, 0, 50)).unwrap();
        protect(&outer, &mut sender, &mut frame).unwrap();
        let sealed = frame.bytes().to_vec();
        let mut tried =
            |bytes: &[u8]| open(&back, &mut receiver, &mut pool.frame_of(bytes).unwrap());
        let start = back.unwrap(&sealed).unwrap().place.start;
        for at in start..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let refused = if at < start + 4 {
                Refused::Spi
            } else {
                Refused::Forged
            };
            assert_eq!(tried(&changed), Err(refused), "byte {at}");
        }
        let mut other = sealed.clone();
        other[start - 1] ^= 7;
        let wrong = if ends == ENDS[0] {
            Refused::Checksum
        } else {
            Refused::NotOurs
        };
        assert_eq!(tried(&other), Err(wrong));
        assert_eq!(tried(&sealed[..sealed.len() - 1]), Err(Refused::Length));
        assert_eq!(tried(&sealed), Ok(Came::Packet(Opened::InStep)));
        assert_eq!(tried(&sealed), Err(Refused::Replay));
    }
}

/// Lets the other end protect `payload` as it is; returns how this end opens the packet.
fn opened(next: u8, payload: &[u8], class: u8) -> (Result<Came, Refused>, Vec<u8>) {
    let (pool, near) = (pool(), config(ENDS[0]));
    let far = turned(&near);
    let (outer, back) = (near.outer().unwrap(), far.outer().unwrap());
    let (mut sender, mut receiver) = (
        near.transmit().sender(5).unwrap(),
        far.receive().receiver(far.search()).unwrap(),
    );
    let mut frame = pool.frame_of(payload).unwrap();
    sender.protect_behind(&mut frame, 0, next).unwrap();
    assert!(outer.wrap(&mut frame, class));
    let came = open(&back, &mut receiver, &mut frame);
    (came, frame.bytes().to_vec())
}

#[test]
fn dummies_hidden_lengths_and_marks_are_understood() {
    let whole = packet(4, 2, 30);
    let hidden = [&whole[14..], &[0; 200]].concat();
    let (came, frame) = opened(PROTOCOL_IPV4, &hidden, 0);
    assert_eq!(came, Ok(Came::Packet(Opened::InStep)));
    assert_eq!(frame, whole);
    assert_eq!(opened(NO_NEXT_HEADER, &[0; 33], 0).0, Ok(Came::Dummy));
    for (next, payload) in [
        (17, &whole[14..]),
        (PROTOCOL_IPV6, &whole[14..]),
        (PROTOCOL_IPV4, &whole[14..40]),
        (PROTOCOL_IPV4, &whole[..0]),
    ] {
        assert_eq!(opened(next, payload, 0).0, Err(Refused::Inner));
    }
    let (_, frame) = opened(PROTOCOL_IPV4, &whole[14..], 3);
    assert_eq!(frame, packet(4, 3, 30));
    let ignorant = packet(4, 0, 30);
    assert_eq!(
        opened(PROTOCOL_IPV4, &ignorant[14..], 3).0,
        Err(Refused::Congested)
    );
}

#[test]
fn wrong_configurations_are_refused_with_what_would_be_right() {
    let refusal = |change: fn(&mut EspTunnelConfig)| {
        let mut config = config(ENDS[0]);
        change(&mut config);
        config.check().err().unwrap().to_string()
    };
    assert_eq!(
        refusal(|config| config.receive_spi = 255),
        "receive_spi = 255: must be 256 to 4294967295 (RFC 4303 reserves 0 to 255)"
    );
    assert!(refusal(|config| config.remote = "fd00::1".parse().unwrap()).starts_with("remote = "));
    let message = refusal(|config| {
        config.receive_key = config.transmit_key;
        config.receive_salt = config.transmit_salt;
    });
    assert!(message.contains("(RFC 4106 §2, §3.1)"), "{message}");
    let message = refusal(|config| config.receive_key = SecretHex::new([0; 16]));
    assert!(message.starts_with("receive_key is all zeros"), "{message}");
    let mut config = config(ENDS[0]);
    config.receive_key = config.transmit_key;
    assert!(config.check().is_ok(), "salts differ, and so do all nonces");
    assert!(refusal(|config| config.resync_attempts = 65).starts_with("resync_attempts = 65"));
}
