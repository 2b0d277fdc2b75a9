//! Random tables and random packets: the AFTR must do what the reference does.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use carina_frame::{Pool, PoolConfig};
use carina_lwaftr::aftr::Aftr;
use carina_lwaftr::check::differences;
use carina_lwaftr::config::Rules;
use carina_lwaftr::file::read;
use carina_lwaftr::table::{PortSets, Softwire, TableBuilder};
use carina_random::Random;
use carina_time::Instant;
use etherparse::{IpDscp, IpEcn};

use crate::extensions::{LIMIT, behind};
use crate::harness::*;
use crate::reference::{Left, MTU4, MTU6, Reference};

/// Number of packets in one run of the test; the variable `CARINA_LWAFTR_PACKETS` overrides it.
fn packets() -> u64 {
    let wanted = std::env::var("CARINA_LWAFTR_PACKETS");
    wanted
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(6000)
}

const TABLES: u64 = 12;

#[test]
fn random_packets_fare_as_the_reference_says() {
    for seed in 0..TABLES {
        let mut random = Random::new(seed);
        let reference = Reference {
            softwires: table(&mut random),
            has_hairpinning: random.chance(7000),
        };
        let mut aftr = Tried::new(&reference);
        let mut forwarded = 0;
        for number in 0..packets() / TABLES {
            let is_internal = random.chance(5000);
            let frame = if is_internal {
                frame6(&from_b4(&mut random, &reference.softwires))
            } else {
                frame4(&packet(&mut random, &reference.softwires, false))
            };
            let expected = if is_internal {
                reference.internal(&frame)
            } else {
                reference.external(&frame)
            };
            let found = aftr.take(&frame, is_internal);
            let wrong = [
                differences(&found.external, &expected.external),
                differences(&found.internal, &expected.internal),
            ]
            .concat();
            assert!(
                wrong.is_empty(),
                "seed {seed}, packet {number}: {wrong:?}\nin {frame:02x?}\n\
                 out {found:02x?}\nexpected {expected:02x?}"
            );
            forwarded += found.external.len() + found.internal.len();
        }
        assert!(forwarded as u64 > packets() / TABLES / 4, "{forwarded}");
    }
}

struct Tried {
    aftr: Aftr,
    pool: Pool,
}

impl Tried {
    fn new(reference: &Reference) -> Tried {
        let limit = "error-rate-limiting { packets 4294967295; period 1; }";
        let hairpinning = format!("{limit} hairpinning {};", reference.has_hairpinning);
        let text = configuration(limit, &hairpinning)
            .replace("VLAN4", "")
            .replace("VLAN6", "")
            .replacen("{ mtu 1500;", &format!("{{ mtu {MTU4};"), 1)
            .replacen("{ mtu 1500;", &format!("{{ mtu {MTU6};"), 1);
        let loaded = read(&text, false).unwrap();
        assert_eq!(usize::from(loaded.config.external.mtu), MTU4);
        let mut builder = TableBuilder::default();
        for softwire in &reference.softwires {
            builder.add(softwire, 0).unwrap();
        }
        let table = Arc::new(builder.build(false).unwrap());
        let pool = Pool::new(PoolConfig {
            frames: 256,
            frame_bytes: 4096,
        })
        .unwrap();
        let queue = &loaded.config.instances[0].queues[0];
        let aftr = Aftr::new(&loaded.config, queue, table, Rules::RFC, pool.clone()).unwrap();
        Tried { aftr, pool }
    }

    fn take(&mut self, frame: &[u8], is_internal: bool) -> Left {
        let frame = self.pool.frame_of(frame).unwrap();
        if is_internal {
            self.aftr.handle_internal(frame, Instant::ZERO)
        } else {
            self.aftr.handle_external(frame, Instant::ZERO)
        }
        let out = self.aftr.outputs();
        let all = |frames: &mut Vec<carina_frame::Frame>| {
            let frames = frames.drain(..).map(|frame| frame.bytes().to_vec());
            frames.collect()
        };
        Left {
            external: all(&mut out.external),
            internal: all(&mut out.internal),
        }
    }
}

/// Softwires of a few addresses with all kinds of port sets, some of which have no owner.
fn table(random: &mut Random) -> Vec<Softwire> {
    let mut made: Vec<Softwire> = Vec::new();
    for last in 0..8 {
        let offset_bits = random.below(7) as u8;
        let psid_bits = random.below(5) as u8;
        // Many addresses are not shared at all.
        let ports = if random.chance(4000) {
            PortSets::default()
        } else {
            PortSets {
                offset_bits,
                psid_bits,
            }
        };
        for psid in 0..1_u16 << ports.psid_bits {
            if random.chance(8000) {
                let number = made.len() as u128;
                made.push(Softwire {
                    ipv4: Ipv4Addr::new(192, 0, 2, last * 2),
                    psid,
                    ports,
                    b4: Ipv6Addr::from((0x2001_0db8_u128 << 96) | (number % 20)),
                    br: Ipv6Addr::from((0x2001_0db8_ffff_u128 << 80) | (number % 3)),
                });
            }
        }
    }
    made
}

fn of_table(random: &mut Random, softwires: &[Softwire]) -> ([u8; 4], u16) {
    let softwire = &softwires[random.index(softwires.len())];
    let k = u32::from(softwire.ports.psid_bits);
    let low = 16 - u32::from(softwire.ports.offset_bits) - k;
    // Usually a port of this softwire; sometimes a low port that belongs to no set.
    let port =
        random.next_u64() as u32 & !(((1 << k) - 1) << low) | u32::from(softwire.psid) << low;
    let port = if random.chance(1000) {
        port & 0xff
    } else {
        port
    };
    (softwire.ipv4.octets(), port as u16)
}

fn anywhere(random: &mut Random) -> [u8; 4] {
    let odd = [
        [224, 0, 0, 5],
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [255; 4],
        [192, 0, 2, 77],
    ];
    if random.chance(1000) {
        odd[random.index(odd.len())]
    } else {
        [198, 51, 100, random.next_u64() as u8]
    }
}

/// A packet to or from an address of the table.
fn packet(random: &mut Random, softwires: &[Softwire], from_table: bool) -> Vec<u8> {
    let (address, port) = of_table(random, softwires);
    let is_between = random.chance(2500);
    let (other, other_port) = if is_between {
        of_table(random, softwires)
    } else {
        (anywhere(random), random.next_u64() as u16)
    };
    let (source, destination) = if from_table {
        ((address, port), (other, other_port))
    } else {
        ((other, other_port), (address, port))
    };
    let length = match random.below(4) {
        0 => random.below(60),
        1 => random.within(1330, 1480),
        _ => random.below(3000),
    };
    let payload: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
    let mut packet = match random.below(6) {
        0 => {
            let word = u32::from(port) << 16 | 5;
            let kind = [0, 8, 13][random.index(3)];
            icmp4([source.0, destination.0], kind, 0, word, &payload)
        }
        1 => {
            // The quoted packet went in the opposite direction.
            let quoted = udp(destination, source, &payload);
            let cut = random.within(0, quoted.len() as u64) as usize;
            let kind = [3, 11, 12][random.index(3)];
            icmp4([source.0, destination.0], kind, 1, 0, &quoted[..cut])
        }
        2 => {
            let mut packet = udp(source, destination, &payload);
            let protocols = [6, 33, 47, 50, 132, 136];
            packet[9] = protocols[random.index(6)];
            packet
        }
        _ => udp(source, destination, &payload),
    };
    let (ttl, class) = (random.next_u64(), random.next_u64() as u8);
    let is_uncuttable = random.chance(3000);
    edit4(&mut packet, |header| {
        header.time_to_live = if ttl.is_multiple_of(8) {
            ttl as u8 / 128
        } else {
            64
        };
        header.dont_fragment = is_uncuttable;
        header.dscp = IpDscp::try_new(class >> 2).unwrap();
        header.ecn = IpEcn::try_new(class & 3).unwrap();
    });
    if random.chance(300) {
        let at = random.index(packet.len().min(40));
        packet[at] ^= 1 << random.below(8);
        // This test sends no fragments.
        packet[6] &= 0x40;
        packet[7] = 0;
    }
    packet
}

/// A packet through a tunnel, usually from the B4 that owns its source.
fn from_b4(random: &mut Random, softwires: &[Softwire]) -> Vec<u8> {
    let inner = packet(random, softwires, true);
    let bits = |port: u16| format!("{port:016b}");
    let port = match inner.get(9) {
        Some(1) => u16::from_be_bytes([inner[24], inner[25]]),
        _ => u16::from_be_bytes([inner[20], inner[21]]),
    };
    let owner = softwires.iter().find(|softwire| {
        let (a, k) = (
            usize::from(softwire.ports.offset_bits),
            usize::from(softwire.ports.psid_bits),
        );
        let psid = u16::from_str_radix(&format!("0{}", &bits(port)[a..a + k]), 2).unwrap();
        softwire.ipv4.octets() == inner[12..16] && psid == softwire.psid
    });
    let any = &softwires[random.index(softwires.len())];
    let owner = owner.filter(|_| random.chance(9000)).unwrap_or(any);
    let br = if random.chance(9500) {
        owner.br
    } else {
        any.br
    };
    let mut packet = tunnel(&owner.b4.to_string(), &br.to_string(), &inner);
    if random.chance(4000) {
        packet[1] |= (random.below(4) as u8) << 4;
    }
    if random.chance(3000) {
        behind(&packet, &[(60, LIMIT)])
    } else {
        packet
    }
}
