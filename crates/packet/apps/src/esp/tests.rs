//! Tests of ESP: a published packet, every payload length, changed bytes, lost sequence numbers.

use carina_frame::{Frame, Pool, PoolConfig};
use carina_wire::inet::{Ipv4Error, Ipv4Header, checksum};

use super::*;

fn pool() -> Pool {
    let (frames, frame_bytes) = (8, 2048);
    Pool::new(PoolConfig {
        frames,
        frame_bytes,
    })
    .unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

fn config(key: &str, salt: &str, spi: u32) -> EspConfig {
    let key = SecretHex::new(hex(key).try_into().unwrap());
    let salt = SecretHex::new(hex(salt).try_into().unwrap());
    EspConfig {
        spi,
        transmit_key: key,
        transmit_salt: salt,
        receive_key: key,
        receive_salt: salt,
        extended: true,
        resync_threshold: 3,
        resync_attempts: 8,
    }
}

fn common() -> EspConfig {
    config("00112233445566778899aabbccddeeff", "01020304", 256)
}

/// An IPv6 packet with this next header and payload.
fn packet(pool: &Pool, next: u8, payload: &[u8]) -> Frame {
    let mut bytes = vec![2; 54];
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    bytes[14] = 0x60;
    bytes[18..20].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    bytes[20] = next;
    bytes.extend_from_slice(payload);
    pool.frame_of(&bytes).unwrap()
}

/// An IPv4 packet with this protocol, these options and this payload.
fn packet4(pool: &Pool, next: u8, options: &[u8], payload: &[u8]) -> Frame {
    let mut bytes = vec![2; 14];
    bytes[12..].copy_from_slice(&[8, 0]);
    let header = 20 + options.len();
    bytes.extend([0x40 + (header / 4) as u8, 0]);
    bytes.extend(((header + payload.len()) as u16).to_be_bytes());
    bytes.extend([
        0x12, 0x34, 0x40, 0, 64, next, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    bytes.extend(options);
    let sum = checksum(&bytes[14..], 0).to_be_bytes();
    bytes[24..26].copy_from_slice(&sum);
    bytes.extend(payload);
    pool.frame_of(&bytes).unwrap()
}

/// The first ESP packet of draft-mcgrew-gcm-test-01 (D. McGrew, *Test Cases for the use of GCM in
/// IPsec ESP*). It has next header 1 behind its padding.
#[test]
fn published_packet_is_made_bit_for_bit() {
    let plain = "45000048 699a0000 80114db7 c0a80102 c0a80101 0a9bf156 38d30100 00010000 00000000
        045f7369 70045f75 64700373 69700963 79626572 63697479 02646b00 00210001";
    let sealed = "00004321 00000000 4956ed7e 3b244cfe
        fecf537e 729d5b07 dc30df52 8dd22b76 8d1b9873 6696a6fd 348509fa 13ceac34 cfa2436f 14a3f3cf
        65925bf1 f4a13c5d 15b21e18 84f5ff62 47aeabb7 86b93bce 61bc17d7 68fd9732 459018148f6cbe72
        2fd04796 562dfdb4";
    let pool = pool();
    let config = config("4c80cdefbb5d10da906ac73c3613a634", "2e443b68", 0x4321);
    let iv = u64::from_be_bytes(hex("4956ed7e3b244cfe").try_into().unwrap());
    let before = 0x8765_4321_0000_0000u64 - 1;
    let mut sender = config.transmit().sender(iv.wrapping_sub(before)).unwrap();
    sender.sequence = before;
    let mut frame = packet(&pool, 1, &hex(plain));
    let whole = frame.bytes().to_vec();
    sender.protect(&mut frame).unwrap();
    assert_eq!(frame.bytes()[54..], hex(sealed));
    let mut receiver = config.receive().receiver(config.search()).unwrap();
    receiver.window.accept(before);
    assert_eq!(receiver.open(&mut frame), Ok(Opened::InStep));
    assert_eq!(frame.bytes(), whole);
}

#[test]
fn every_length_comes_back_as_it_was() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    for length in 0..70 {
        let payload: Vec<u8> = (0..length).collect();
        let mut frame = packet(&pool, 17, &payload);
        let whole = frame.bytes().to_vec();
        sender.protect(&mut frame).unwrap();
        assert!((frame.len() - 54).is_multiple_of(4));
        assert_eq!(receiver.open(&mut frame), Ok(Opened::InStep));
        assert_eq!(frame.bytes(), whole);
    }
}

#[test]
fn packets_of_ipv4_come_back_with_their_header() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    for length in 0..70 {
        let payload: Vec<u8> = (0..length).collect();
        // Two "no operation" options, padded, and "end of list": options stay in front of ESP. (RFC
        // 791 §3.1)
        let options: &[u8] = if length % 2 == 0 { &[] } else { &[1, 1, 1, 0] };
        let mut frame = packet4(&pool, 47, options, &payload);
        let whole = frame.bytes().to_vec();
        sender.protect(&mut frame).unwrap();
        let header = Ipv4Header::decode(&frame.bytes()[14..]).unwrap();
        assert_eq!(
            (header.protocol, header.header_bytes),
            (50, 20 + options.len())
        );
        assert_eq!(14 + header.total_bytes, frame.len());
        assert!((header.total_bytes - header.header_bytes).is_multiple_of(4));
        // Ethernet padding behind the packet does not belong to it.
        assert!(frame.append(&[0; 6]));
        assert_eq!(receiver.open(&mut frame), Ok(Opened::InStep));
        assert_eq!(frame.bytes(), whole);
    }
}

#[test]
fn wrong_checksum_of_ipv4_stays_wrong() {
    let (pool, config) = (pool(), common());
    let mut sender = config.transmit().sender(7).unwrap();
    let mut frame = packet4(&pool, 17, &[], b"payload");
    frame.bytes_mut()[26] ^= 1;
    sender.protect(&mut frame).unwrap();
    let decoded = Ipv4Header::decode(&frame.bytes()[14..]);
    assert_eq!(decoded, Err(Ipv4Error::Checksum));
}

#[test]
fn parts_of_packets_are_neither_protected_nor_opened() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    for bits in [[0x20, 0], [0, 1], [0x20, 9]] {
        let mut frame = packet4(&pool, 17, &[], b"payload");
        frame.bytes_mut()[20..22].copy_from_slice(&bits);
        assert_eq!(sender.protect(&mut frame), Err(Unprotected::Fragment));
        let mut frame = packet4(&pool, 50, &[], &[0; 40]);
        frame.bytes_mut()[20..22].copy_from_slice(&bits);
        assert_eq!(receiver.open(&mut frame), Err(Refused::Fragment));
    }
    let cut = |at: usize| {
        let frame = packet4(&pool, 17, &[], b"payload");
        pool.frame_of(&frame.bytes()[..at]).unwrap()
    };
    for length in 0..41 {
        let wanted = if length < 15 {
            Unprotected::NotIp
        } else {
            Unprotected::Length
        };
        assert_eq!(sender.protect(&mut cut(length)), Err(wanted), "{length}");
    }
}

#[test]
fn changed_and_repeated_packets_are_refused() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    let mut frame = packet(&pool, 17, b"payload");
    sender.protect(&mut frame).unwrap();
    let sealed = frame.bytes().to_vec();
    let mut open = |bytes: &[u8]| receiver.open(&mut pool.frame_of(bytes).unwrap());
    for at in 54..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        let refused = if at < 58 {
            Refused::Spi
        } else {
            Refused::Forged
        };
        assert_eq!(open(&changed), Err(refused), "byte {at}");
    }
    assert_eq!(open(&sealed[..sealed.len() - 1]), Err(Refused::Length));
    assert_eq!(open(&sealed), Ok(Opened::InStep));
    assert_eq!(open(&sealed), Err(Refused::Replay));
}

#[test]
fn receiver_finds_a_sender_that_went_on_without_it() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    sender.sequence = 5 << 32;
    let mut results = Vec::new();
    for _ in 0..6 {
        let mut frame = packet(&pool, 17, b"payload");
        sender.protect(&mut frame).unwrap();
        results.push(receiver.open(&mut frame));
    }
    let (forged, found) = (Err(Refused::Forged), Ok(Opened::Resynchronised));
    assert_eq!(
        results,
        [
            forged,
            forged,
            forged,
            found,
            Ok(Opened::InStep),
            Ok(Opened::InStep)
        ]
    );
    assert_eq!(receiver.window.top(), (5 << 32) + 6);
}

#[test]
fn numbers_of_32_bits_end() {
    let pool = pool();
    let config = EspConfig {
        extended: false,
        ..common()
    };
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    sender.sequence = u64::from(u32::MAX) - 1;
    let mut frame = packet(&pool, 17, b"last");
    sender.protect(&mut frame).unwrap();
    assert_eq!(receiver.open(&mut frame), Ok(Opened::InStep));
    let mut frame = packet(&pool, 17, b"one more");
    assert_eq!(sender.protect(&mut frame), Err(Unprotected::Exhausted));
}

/// IPv6 extension headers in front of a UDP payload.
fn behind(headers: &[u8]) -> Vec<u8> {
    [headers, b"payload"].concat()
}

#[test]
fn headers_for_the_way_stay_readable_and_come_back() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    const OPTIONS: [u8; 8] = [17, 0, 1, 4, 0, 0, 0, 0];
    let mut hop_by_hop = OPTIONS;
    hop_by_hop[0] = 43;
    let routing = [60, 0, 0, 0, 0, 0, 0, 0];
    let chain = [hop_by_hop, routing, OPTIONS].concat();
    let mut frame = packet(&pool, 0, &behind(&chain));
    let whole = frame.bytes().to_vec();
    sender.protect(&mut frame).unwrap();
    let bytes = frame.bytes();
    assert_eq!(bytes[20], 0);
    assert_eq!(bytes[54..62], hop_by_hop);
    assert_eq!(bytes[62..70], [50, 0, 0, 0, 0, 0, 0, 0], "ESP follows");
    let length = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
    assert_eq!(length, bytes.len() - 54);
    assert!(!bytes.windows(7).any(|part| part == b"payload"));
    assert_eq!(receiver.open(&mut frame), Ok(Opened::InStep));
    assert_eq!(frame.bytes(), whole);
}

#[test]
fn esp_behind_destination_options_is_opened() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    let mut frame = packet(&pool, 17, b"payload");
    sender.protect(&mut frame).unwrap();
    let sealed = frame.bytes()[54..].to_vec();
    const LIMIT: [u8; 8] = [50, 0, 4, 1, 4, 1, 1, 0];
    let mut frame = packet(&pool, 60, &[&LIMIT[..], &sealed].concat());
    assert_eq!(receiver.open(&mut frame), Ok(Opened::InStep));
    assert_eq!(frame.bytes()[54..62], [17, 0, 4, 1, 4, 1, 1, 0]);
    assert_eq!(&frame.bytes()[62..], b"payload");
    assert_eq!(frame.bytes()[18..20], [0, 15]);
}

#[test]
fn parts_of_packets_of_ipv6_are_not_protected() {
    let (pool, config) = (pool(), common());
    let (mut sender, mut receiver) = (
        config.transmit().sender(7).unwrap(),
        config.receive().receiver(config.search()).unwrap(),
    );
    for word in [1, 8, 9] {
        let mut frame = packet(&pool, 44, &behind(&[17, 0, 0, word, 0, 0, 0, 7]));
        assert_eq!(sender.protect(&mut frame), Err(Unprotected::Fragment));
        let mut frame = packet(&pool, 44, &behind(&[50, 0, 0, word, 0, 0, 0, 7]));
        assert_eq!(receiver.open(&mut frame), Err(Refused::Fragment));
    }
}
