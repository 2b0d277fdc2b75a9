//! Randomly damaged frames and files: nothing panics, no frame leaks, and every frame that leaves
//! is well formed.

use std::sync::Arc;

use carina_frame::{Pool, PoolConfig};
use carina_lwaftr::aftr::Aftr;
use carina_lwaftr::config::Rules;
use carina_lwaftr::file::{compile, read, read_compiled};
use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_wire::inet::Ipv4Header;

use crate::harness::*;

/// Frames of every kind, each with whether it is internal; external ones first.
fn good() -> Vec<(bool, Vec<u8>)> {
    let long = udp((HOST, 53), (SHARED, 40000), &[7; 1300]);
    let sent = udp((SHARED, 40000), (HOST, 80), b"request");
    let external = [
        udp((HOST, 53), (WHOLE, 5), b"answer"),
        long.clone(),
        udp((HOST, 53), ([192, 0, 2, 3], 5), b"stray"),
        icmp4([HOST, SHARED], 8, 0, 0x9000_0001, b"ping"),
        icmp4([HOST, OWN4], 8, 0, 7, b"ping"),
        icmp4([HOST, SHARED], 3, 4, 1400, &sent),
    ];
    let internal = [
        tunnel(B4_HIGH, BR, &sent),
        tunnel(B4_LOW, BR, &sent),
        tunnel(B4_HIGH, BR, &udp((SHARED, 40000), (WHOLE, 80), b"hello")),
        tunnel(B4_HIGH, BR, &udp((SHARED, 40000), (HOST, 80), &[9; 1400])),
        icmp6(
            ["2001:db8::99", BR],
            2,
            0,
            1280,
            &tunnel(BR, B4_HIGH, &long),
        ),
        icmp6(["2001:db8::99", OWN6], 128, 0, 7, b"ping"),
    ];
    let external = external.map(|packet| (false, frame4(&packet)));
    let internal = internal.map(|packet| (true, frame6(&packet)));
    [external, internal].concat()
}

/// Turns a frame into a fragment at random, and damages some of its bytes.
fn damaged(random: &mut Random, is_internal: bool, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if random.chance(3000) {
        // Makes an IPv4 fragment, also inside the tunnel, or an IPv6 fragment.
        let at = if is_internal { 54 } else { 14 };
        if is_internal && random.chance(5000) {
            let offset = (random.below(6) as u8 * 8) | random.below(2) as u8;
            let head = [4, 0, 0, offset, 0, 0, 0, random.below(3) as u8];
            let part = random.below(60) as usize;
            frame.truncate(54 + part);
            frame.splice(54..54, head);
            let length = (frame.len() - 54) as u16;
            frame[18..20].copy_from_slice(&length.to_be_bytes());
            frame[20] = 44;
        } else if frame.len() > at + 20 {
            let mut packet = frame.split_off(at);
            if Ipv4Header::decode(&packet).is_ok() {
                let (more, offset) = (random.chance(6000), random.below(4) as u16);
                edit4(&mut packet, |header| {
                    header.more_fragments = more;
                    header.fragment_offset = etherparse::IpFragOffset::try_new(offset).unwrap();
                });
            }
            frame.extend(packet);
        }
    }
    for _ in 0..random.below(3) {
        let at = random.index(frame.len());
        match random.below(3) {
            0 => frame[at] = random.next_u64() as u8,
            1 => frame[at] ^= 1 << random.below(8),
            _ => frame.truncate(at.max(1)),
        }
    }
    frame
}

#[test]
fn damaged_frames_lose_nothing_and_damage_nothing() {
    let case = Case::with(
        "reassembly { max-packets 5; } ingress-filter \"not tcp\";",
        "reassembly { max-packets 5; max-fragments-per-packet 4; } hairpinning true;",
    );
    let loaded = case.loaded([None, None]);
    let table = Arc::new(loaded.table.clone());
    let queue = &loaded.config.instances[0].queues[0];
    let good = good();
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let pool = Pool::new(PoolConfig {
            frames: 256,
            frame_bytes: 4096,
        })
        .unwrap();
        let rules = if seed % 2 == 0 {
            Rules::RFC
        } else {
            Rules::SNABB
        };
        let table = Arc::clone(&table);
        let mut aftr = Aftr::new(&loaded.config, queue, table, rules, pool.clone()).unwrap();
        let (mut now, mut count) = (Instant::ZERO, 0);
        for _ in 0..2500 {
            now += Duration::from_millis(random.below(3000));
            aftr.handle_time(now);
            let (is_internal, frame) = &good[random.index(good.len())];
            let bytes = damaged(&mut random, *is_internal, frame);
            let frame = pool.frame_of(&bytes).expect("frames come back to the pool");
            match (random.chance(2000), is_internal) {
                (true, _) => aftr.handle_stick(frame, now),
                (false, true) => aftr.handle_internal(frame, now),
                (false, false) => aftr.handle_external(frame, now),
            }
            let out = aftr.outputs();
            for frame in out.external.drain(..) {
                let packet = &frame.bytes()[14..];
                let header = Ipv4Header::decode(packet).expect("a packet of IPv4");
                assert!(packet.len() <= 1500 && header.total_bytes == packet.len());
                count += 1;
            }
            for frame in out.internal.drain(..) {
                let (header, _) = etherparse::Ipv6Header::from_slice(&frame.bytes()[14..]).unwrap();
                let length = 54 + usize::from(header.payload_length);
                assert!(frame.len() <= 1514 && frame.len() == length);
                count += 1;
            }
        }
        assert!(count > 500, "{count} frames left");
        drop(aftr);
        assert_eq!(pool.spare(), pool.frames());
    }
}

#[test]
fn damaged_configurations_are_refused_or_read_in_bounds() {
    let files = [
        include_str!("files/snabb-v3.conf"),
        include_str!("files/ietf.conf"),
    ];
    let mut random = Random::new(1);
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..4000 {
        let mut bytes = files[number % 2].as_bytes().to_vec();
        for _ in 0..random.within(1, 3) {
            let at = random.index(bytes.len());
            match random.below(4) {
                0 => bytes[at] = b"{};\"'/*+ \n0z"[random.index(12)],
                1 => bytes[at] = random.next_u64() as u8 & 0x7f,
                2 => drop(bytes.splice(at..at, b"softwire { ".iter().copied())),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let text = String::from_utf8(bytes).unwrap();
        match read(&text, false) {
            Ok(loaded) => {
                let again = read_compiled(&compile(&loaded), false).unwrap();
                assert_eq!(again.config, loaded.config);
                accepted += 1;
            }
            Err(error) => {
                let lines = text.lines().count() as u32 + 1;
                assert!((1..=lines).contains(&error.line), "{error}\n{text}");
                refused += 1;
            }
        }
    }
    assert!(accepted > 20 && refused > 1000, "{accepted}, {refused}");
}
