//! DIFs of rlite's and IRATI's dialects: exchange of SDUs, relaying, refusals.

use std::collections::BTreeSet;

use carina_ipcp::api::{FlowKey, N1Port};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, TransferEvent};
use carina_ipcp::{DataPath, DifConfig, DropReason};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::{Address, CepId, Dialect, Syntax};

use crate::data_transfer::net::{MS, Net, config, policy, props, sdu};

const FOREIGN: [Dialect; 2] = [Dialect::Rlite, Dialect::Irati];

fn configured(dialect: Dialect) -> DifConfig {
    DifConfig {
        max_pdu_lifetime_ms: 500,
        ..DifConfig::of_dialect(dialect)
    }
}

fn two(dialect: Dialect, config: &DifConfig) -> Net {
    let mut net = Net::of_dialect(dialect, 2, config);
    net.wire((0, 0), (1, 0));
    net
}

/// Three members in a line: 1 - 2 - 3.
fn line(dialect: Dialect, config: &DifConfig) -> Net {
    let mut net = Net::of_dialect(dialect, 3, config);
    net.wire((0, 0), (1, 0));
    net.wire((1, 1), (2, 0));
    net.route(0, &[(2, &[2], &[]), (3, &[2], &[])]);
    net.route(1, &[(1, &[1], &[]), (3, &[3], &[])]);
    net.route(2, &[(1, &[2], &[]), (2, &[2], &[])]);
    net
}

/// Writes SDUs in both directions at intervals, and checks what was read.
fn exchange(net: &mut Net, last: usize, config: &DifConfig, loses: bool) {
    for (key, cube) in config.cubes.iter().enumerate() {
        let key = key as u32 + 1;
        net.flow(0, last, key, cube);
        let sdus: Vec<_> = (0..400).map(|number| sdu(number, number * 3)).collect();
        for sdu in &sdus {
            net.write(0, key, sdu);
            net.write(last, key, sdu);
            net.run_until(net.now + 2 * MS);
        }
        net.run_until(net.now + Duration::from_secs(30));
        for member in [0, last] {
            let read = net.take_read(member, key);
            if cube.retransmission || !loses {
                assert_eq!(read.len(), sdus.len(), "{}", cube.name);
                assert_eq!(read, sdus, "{}", cube.name);
                continue;
            }
            let known: BTreeSet<_> = sdus.iter().collect();
            let distinct: BTreeSet<_> = read.iter().collect();
            assert!(read.len() > 200, "{}: {}", cube.name, read.len());
            assert_eq!(distinct.len(), read.len(), "{}", cube.name);
            assert!(distinct.is_subset(&known), "{}", cube.name);
        }
    }
}

#[test]
fn two_members_exchange_sdus() {
    for dialect in FOREIGN {
        let config = configured(dialect);
        let mut net = two(dialect, &config);
        exchange(&mut net, 1, &config, false);
        for member in &net.members {
            assert_eq!(member.counters().dropped_total(), 0, "{dialect:?}");
        }
    }
}

#[test]
fn two_members_exchange_sdus_over_a_lossy_flow() {
    for dialect in FOREIGN {
        for seed in 1..20 {
            let config = configured(dialect);
            let mut net = two(dialect, &config);
            net.loses = Some(Box::new(move |_, _, number| {
                (number + 1000 * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0
            }));
            exchange(&mut net, 1, &config, true);
        }
    }
}

#[test]
fn a_relay_between_them_counts_what_its_dialect_counts() {
    for dialect in FOREIGN {
        for checksum in ["none", "inet"] {
            let mut config = configured(dialect);
            if dialect == Dialect::Rlite {
                let spec = policy(checksum, &[]);
                config.policies.insert("pci-checksum".into(), spec);
            }
            let mut net = line(dialect, &config);
            let syntax = Syntax::of_dialect(dialect);
            net.loses = Some(Box::new(move |from, bytes, _| {
                let route = syntax.peek(bytes).unwrap();
                let expected = match (dialect, from) {
                    (Dialect::Irati, _) => 255,
                    (_, 1) => 63,
                    _ => 64,
                };
                assert_eq!(route.hop_limit, expected);
                let has_sum = checksum == "inet" && dialect == Dialect::Rlite;
                assert_eq!(syntax.has_valid_checksum(bytes), has_sum);
                false
            }));
            exchange(&mut net, 2, &config, false);
            assert!(net.members[1].counters().pdus_relayed > 1600);
            for member in &net.members {
                assert_eq!(member.counters().dropped_total(), 0);
            }
        }
    }
}

#[test]
fn a_relay_loses_what_it_may() {
    for dialect in FOREIGN {
        let config = configured(dialect);
        for seed in 1..8 {
            let mut net = line(dialect, &config);
            net.loses = Some(Box::new(move |_, _, number| {
                (number + 1000 * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0
            }));
            exchange(&mut net, 2, &config, true);
        }
    }
}

#[test]
fn damaged_pdus_are_counted_under_their_checksum() {
    let mut config = configured(Dialect::Rlite);
    let spec = policy("inet", &[]);
    config.policies.insert("pci-checksum".into(), spec);
    let mut net = two(Dialect::Rlite, &config);
    net.loses = Some(Box::new(|_, bytes, number| {
        if number.is_multiple_of(7) {
            let at = number as usize * 31 % bytes.len();
            // The length is excluded, because it is checked before the checksum.
            if !(24..26).contains(&at) && at != 1 {
                bytes[at] ^= 0x04;
            }
        }
        false
    }));
    exchange(&mut net, 1, &config, true);
    assert!(net.dropped(0, DropReason::HeaderChecksum) > 50);
    assert!(net.dropped(1, DropReason::HeaderChecksum) > 50);
    assert_eq!(net.dropped(1, DropReason::Forged), 0);
}

#[test]
fn a_ttl_of_0_is_not_relayed_and_is_taken_where_it_ends() {
    let config = configured(Dialect::Rlite);
    let mut net = line(Dialect::Rlite, &config);
    let cube = config.cubes[0].clone();
    let (_, last) = net.flow(0, 2, 1, &cube);
    let pdu = |ttl: u8| {
        let mut pdu = vec![0, 0x80, 0x80, 0, 0, 0, ttl, 0, 0, 0, 0, 0];
        pdu.extend([3, 0, 0, 0, 1, 0, 0, 0]);
        pdu.extend([last.0 as u8, 0, 1, 0, 29, 0, 0, 0, 5]);
        Bytes::from(pdu)
    };
    net.members[1].on_pdu(net.now, N1Port(0), pdu(0));
    assert_eq!(net.dropped(1, DropReason::HopLimit), 1);
    net.members[1].on_pdu(net.now, N1Port(0), pdu(1));
    net.run_until_quiet();
    assert_eq!(net.take_read(2, 1), [vec![5]]);
}

#[test]
fn data_to_and_from_address_0_is_dropped() {
    for dialect in FOREIGN {
        let config = configured(dialect);
        let mut net = two(dialect, &config);
        let cube = config.cubes[0].clone();
        net.flow(0, 1, 1, &cube);
        net.loses = Some(Box::new(move |_, bytes, _| {
            let at = if dialect == Dialect::Rlite { 12 } else { 1 };
            bytes[at] = 0;
            false
        }));
        net.write(0, 1, b"for whom");
        net.run_until_quiet();
        assert_eq!(net.dropped(1, DropReason::UnknownDestination), 1);
        net.loses = Some(Box::new(move |_, bytes, _| {
            let at = if dialect == Dialect::Rlite { 16 } else { 3 };
            bytes[at] = 0;
            false
        }));
        net.write(0, 1, b"from whom");
        net.run_until_quiet();
        assert_eq!(net.dropped(1, DropReason::Forged), 1);
        assert!(net.take_read(1, 1).is_empty());
    }
}

#[test]
fn reserved_types_have_a_reason_of_their_own() {
    for (dialect, at, kind) in [(Dialect::Rlite, 1, 0xc6), (Dialect::Irati, 11, 0xc9)] {
        let config = configured(dialect);
        let mut net = two(dialect, &config);
        net.flow(0, 1, 1, &config.cubes[0]);
        net.loses = Some(Box::new(move |_, bytes, _| {
            bytes[at] = kind;
            false
        }));
        net.write(0, 1, b"of what type");
        net.run_until_quiet();
        assert_eq!(net.dropped(1, DropReason::HeaderReservedType), 1);
        let is_named = |(_, event): &(usize, TransferEvent)| matches!(event, TransferEvent::Notice { text } if text.contains("header-reserved-type"));
        assert!(net.events.iter().any(is_named), "{:?}", net.events);
    }
}

/// rlite also assigns CEP-id 0.
#[test]
fn the_other_end_may_have_cep_0() {
    let config = configured(Dialect::Rlite);
    let mut net = Net::of_dialect(Dialect::Rlite, 1, &config);
    net.members[0].add_n1(N1Port(0), &props());
    net.members[0].set_neighbour(Instant::ZERO, Address(9), &[N1Port(0)]);
    let cep = net.open(0, 1, &config.cubes[1]);
    net.members[0].connect(Instant::ZERO, cep, Address(9), CepId(0));
    let pdu = [
        vec![0, 0x80, 0x80, 0, 0, 0, 64, 0, 0, 0, 0, 0],
        vec![1, 0, 0, 0, 9, 0, 0, 0],
        vec![cep.0 as u8, 0, 0, 0, 29, 0, 0, 0, 5],
    ];
    net.members[0].on_pdu(net.now, N1Port(0), Bytes::from(pdu.concat()));
    net.run_until_quiet();
    assert_eq!(net.take_read(0, 1), [vec![5]]);
    assert_eq!(net.members[0].counters().dropped_total(), 0);
}

#[test]
fn an_sdu_that_is_longer_than_a_pdu_is_refused_with_its_size() {
    for (dialect, sdu_max) in [(Dialect::Rlite, 1472), (Dialect::Irati, 1451)] {
        let config = configured(dialect);
        let mut net = two(dialect, &config);
        for (key, cube) in config.cubes.iter().enumerate() {
            let key = key as u32 + 1;
            net.flow(0, 1, key, cube);
            assert_eq!(net.members[0].sdu_max(FlowKey(key)), sdu_max);
            net.write(0, key, &sdu(1, sdu_max));
            net.run_until(net.now + 1000 * MS);
            assert_eq!(net.take_read(1, key), [sdu(1, sdu_max)]);
            net.write(0, key, &sdu(2, sdu_max + 1));
            net.write(0, key, &sdu(3, sdu_max + 1));
            net.run_until_quiet();
            let words = format!("an SDU of {} bytes was refused", sdu_max + 1);
            let told = net.events.iter().filter(|(_, event)| match event {
                TransferEvent::Notice { text } => !cube.retransmission && text.contains(&words),
                TransferEvent::Failed { reason, .. } => {
                    cube.retransmission && reason.contains(&words)
                }
                _ => false,
            });
            assert_eq!(told.count(), 1, "{:?}", net.events);
            net.events.clear();
        }
        assert!(net.dropped(0, DropReason::SduTooLong) >= 3);
    }
}

#[test]
fn irati_fragments_where_the_configuration_says_so() {
    let mut config = configured(Dialect::Irati);
    let spec = policy("flag-byte", &[]);
    config.policies.insert("delimiting".into(), spec);
    let mut net = two(Dialect::Irati, &config);
    for (key, cube) in config.cubes.iter().enumerate() {
        let key = key as u32 + 1;
        net.flow(0, 1, key, cube);
        assert_eq!(net.members[0].sdu_max(FlowKey(key)), usize::MAX);
        let sdus = [sdu(1, 10), sdu(2, 1450), sdu(3, 1451), sdu(4, 20_000)];
        for sdu in &sdus {
            net.write(0, key, sdu);
        }
        net.run_until(net.now + 1000 * MS);
        assert_eq!(net.take_read(1, key), sdus, "{}", cube.name);
    }
}

#[test]
fn what_a_dialect_cannot_do_is_refused_in_words() {
    let mut native = config();
    let spec = policy("inet", &[]);
    native.policies.insert("pci-checksum".into(), spec);
    let mut member: DataPath<Bytes> = DataPath::new(carina_ipcp::Catalogue::standard(), 1);
    let refused = member.configure(Instant::ZERO, &native).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("native has no checksum"), "{refused}");

    for dialect in FOREIGN {
        let config = configured(dialect);
        let mut net = two(dialect, &config);
        let mut open = Open {
            owner: Owner::Channel(1),
            cube: config.cubes[1].clone(),
            msg_boundaries: true,
            pinned: Some(N1Port(0)),
        };
        let refused = net.members[0]
            .open(Instant::ZERO, open.clone())
            .unwrap_err()
            .to_string();
        assert!(refused.contains("no management channels"), "{refused}");
        (open.owner, open.pinned) = (Owner::Flow(FlowKey(1)), None);
        open.cube.rate = Some(carina_ipcp::config::RateConfig {
            pdus: 10,
            frame_ms: 10,
        });
        let opened = net.members[0].open(Instant::ZERO, open);
        match dialect {
            Dialect::Rlite => {
                let refused = opened.unwrap_err().to_string();
                assert!(refused.contains("flow control by rate"));
            }
            _ => assert!(opened.is_ok()),
        }
        let odd = DifConfig {
            widths: carina_ipcp::config::FieldWidths {
                ctrl_seq: 2,
                ..config.widths
            },
            ..config
        };
        let mut member: DataPath<Bytes> =
            DataPath::of_dialect(carina_ipcp::Catalogue::standard(), dialect, 1);
        let refused = member.configure(Instant::ZERO, &odd).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("as wide as sequence numbers"), "{refused}");
    }
}
