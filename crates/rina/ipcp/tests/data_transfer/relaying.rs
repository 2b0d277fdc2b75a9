//! Relays: hop limit, ECMP, N-1 flows that end, alternates, forged addresses.

use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, TransferEvent};
use carina_ipcp::{DifConfig, DropReason};
use carina_time::Duration;
use carina_wire::Bytes;
use carina_wire::dif::{Address, CepId, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax};

use crate::data_transfer::net::{Net, config, cubes, policy, sdu};

/// Three members in a line, 1 - 2 - 3, with routes.
fn line(config: &DifConfig) -> Net {
    let mut net = Net::new(3, config);
    net.wire((0, 0), (1, 0));
    net.wire((1, 1), (2, 0));
    net.route(0, &[(2, &[2], &[]), (3, &[2], &[])]);
    net.route(1, &[(1, &[1], &[]), (3, &[3], &[])]);
    net.route(2, &[(1, &[2], &[]), (2, &[2], &[])]);
    net
}

/// Four members with two paths from 1 to 4, through 2 and through 3.
fn diamond(config: &DifConfig) -> Net {
    let mut net = Net::new(4, config);
    net.wire((0, 0), (1, 0));
    net.wire((0, 1), (2, 0));
    net.wire((1, 1), (3, 0));
    net.wire((2, 1), (3, 1));
    net.route(0, &[(4, &[2, 3], &[])]);
    net.route(1, &[(4, &[4], &[]), (1, &[1], &[])]);
    net.route(2, &[(4, &[4], &[]), (1, &[1], &[])]);
    net.route(3, &[(1, &[2, 3], &[])]);
    net
}

fn pdu(pci: &Pci, hop_limit: u8, payload: &[u8]) -> Bytes {
    let mut header = [0; PCI_BYTES_MAX];
    let len = Syntax::default()
        .encode(pci, None, payload.len(), hop_limit, &mut header)
        .unwrap();
    Bytes::from([&header[..len], payload].concat())
}

fn data(src: u64, dst: u64, seq: u64) -> Pci {
    Pci {
        kind: PduType::Data,
        dst: Address(dst),
        src: Address(src),
        qos: QosId(1),
        dst_cep: CepId(9),
        src_cep: CepId(8),
        drf: false,
        ecn: false,
        seq,
    }
}

#[test]
fn flows_of_all_cubes_cross_a_relay() {
    for cube in cubes() {
        let mut net = line(&config());
        net.flow(0, 2, 1, &cube);
        let sdus: Vec<_> = (0..300).map(|number| sdu(number, number * 17)).collect();
        for sdu in &sdus {
            net.write(0, 1, sdu);
            net.write(2, 1, sdu);
        }
        net.run_until(net.now + Duration::from_secs(2));
        for member in [0, 2] {
            let mut read = net.take_read(member, 1);
            read.sort();
            let mut sent = sdus.clone();
            sent.sort();
            assert_eq!(read.len(), sent.len(), "{}", cube.name);
            assert_eq!(read, sent, "{}", cube.name);
        }
        assert!(net.members[1].counters().pdus_relayed > 600);
        assert_eq!(net.members[1].counters().dropped_total(), 0);
    }
}

#[test]
fn other_widths_work_as_well() {
    let mut config = config();
    config.widths.address = 8;
    config.widths.cep = 4;
    config.widths.qos = 2;
    config.widths.seq = 8;
    config.widths.length = 4;
    let mut small = config.clone();
    small.widths.address = 1;
    small.widths.cep = 1;
    small.widths.seq = 2;
    small.widths.ctrl_seq = 2;
    for config in [config, small] {
        let mut net = line(&config);
        net.flow(0, 2, 1, &cubes()[2]);
        let sdus: Vec<_> = (0..200).map(|number| sdu(number, number * 40)).collect();
        for sdu in &sdus {
            net.write(0, 1, sdu);
        }
        net.run_until(net.now + Duration::from_secs(1));
        assert_eq!(net.take_read(2, 1), sdus);
    }
}

#[test]
fn a_loop_in_the_tables_ends_at_the_hop_limit() {
    let mut net = line(&config());
    // No member has address 4; members 2 and 3 route it to each other.
    net.route(0, &[(4, &[2], &[])]);
    net.route(1, &[(4, &[3], &[])]);
    net.route(2, &[(4, &[2], &[])]);
    let cep = net.open(0, 1, &cubes()[0]);
    let now = net.now;
    net.members[0].connect(now, cep, Address(4), CepId(77));
    net.write(0, 1, b"round and round");
    net.run_until_quiet();
    let limit = u64::from(config().hop_limit);
    let relayed = [1, 2].map(|member| net.members[member].counters().pdus_relayed);
    assert_eq!(relayed[0] + relayed[1], limit - 1);
    let dropped = [1, 2].map(|member| net.dropped(member, DropReason::HopLimit));
    assert_eq!(dropped[0] + dropped[1], 1);
}

#[test]
fn a_relay_counts_hops_and_drops_the_last() {
    let mut net = line(&config());
    let now = net.now;
    net.members[1].on_pdu(now, N1Port(0), pdu(&data(1, 3, 5), 2, b"x"));
    assert_eq!(net.members[1].poll_n1(), Some(N1Port(1)));
    let out = net.members[1].take_transmit(now, N1Port(1)).unwrap();
    assert_eq!(out.as_slice(), pdu(&data(1, 3, 5), 1, b"x").as_slice());
    net.members[1].on_pdu(now, N1Port(0), pdu(&data(1, 3, 5), 1, b"x"));
    assert_eq!(net.members[1].poll_n1(), None);
    assert_eq!(net.dropped(1, DropReason::HopLimit), 1);
}

#[test]
fn impossible_sources_and_unknown_destinations_are_counted() {
    let mut net = line(&config());
    let now = net.now;
    let mut give = |pci: Pci, port| net.members[1].on_pdu(now, N1Port(port), pdu(&pci, 9, b"x"));
    give(data(2, 3, 1), 0);
    give(data(0, 3, 1), 0);
    give(data(1, 77, 1), 0);
    give(data(1, 2, 1), 0);
    give(data(1, 3, 1), 40);
    give(
        Pci {
            qos: QosId(99),
            ..data(1, 3, 1)
        },
        0,
    );
    assert_eq!(net.dropped(1, DropReason::Forged), 2);
    assert_eq!(net.dropped(1, DropReason::UnknownDestination), 1);
    assert_eq!(net.dropped(1, DropReason::UnknownCep), 1);
    assert_eq!(net.dropped(1, DropReason::UnknownN1), 1);
    assert_eq!(net.dropped(1, DropReason::UnknownCube), 1);
    let mut notices = 0;
    while let Some(event) = DataTransfer::poll(&mut net.members[1]) {
        notices += u32::from(matches!(event, TransferEvent::Notice { .. }));
    }
    assert_eq!(notices, 1, "once per N-1 flow and reason");
}

#[test]
fn data_from_another_address_than_the_flow_has_is_forged() {
    let mut net = line(&config());
    let (_, cep) = net.flow(0, 2, 1, &cubes()[0]);
    let now = net.now;
    let forged = Pci {
        dst_cep: cep,
        ..data(2, 3, 1)
    };
    for _ in 0..5 {
        net.members[2].on_pdu(now, N1Port(0), pdu(&forged, 9, b"\0x"));
    }
    net.run_until_quiet();
    assert_eq!(net.dropped(2, DropReason::Forged), 5);
    assert!(net.take_read(2, 1).is_empty());
    assert_eq!(net.notices(2, "forged"), 1, "told once");
    // The flow's real peer can still send.
    net.write(0, 1, &sdu(7, 500));
    net.run_until_quiet();
    assert_eq!(net.take_read(2, 1), [sdu(7, 500)]);
}

#[test]
fn connections_spread_over_equal_paths_and_keep_theirs() {
    let mut net = diamond(&config());
    let reliable = &cubes()[2];
    for key in 0..64 {
        net.flow(0, 3, key, reliable);
    }
    for round in 0..8 {
        for key in 0..64 {
            net.write(0, key, &sdu(round, 100));
        }
        net.run_until_quiet();
    }
    net.run_until(net.now + Duration::from_secs(1));
    for key in 0..64 {
        assert_eq!(net.take_read(3, key).len(), 8);
    }
    let through = [1, 2].map(|member| net.members[member].counters().pdus_relayed);
    assert!(through.iter().all(|count| *count > 250), "{through:?}");
    for member in &net.members {
        let out_of_order = member.counters().dropped_total();
        assert_eq!(out_of_order, 0);
    }
}

#[test]
fn the_policy_single_uses_the_first_next_hop() {
    let mut config = config();
    config
        .policies
        .insert("forwarding".into(), policy("single", &[]));
    let mut net = diamond(&config);
    for key in 0..32 {
        net.flow(0, 3, key, &cubes()[0]);
        net.write(0, key, b"one way");
    }
    net.run_until_quiet();
    let through = [1, 2].map(|member| net.members[member].counters().pdus_relayed);
    assert_eq!(through, [32, 0]);
}

/// Two members with two N-1 flows between them. Neither takes PDUs, and PDUs of sixteen flows wait.
fn two_with_queues() -> Net {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.wire((0, 1), (1, 1));
    net.stopped = vec![(0, 0), (0, 1)];
    for key in 0..16 {
        net.flow(0, 1, key, &cubes()[0]);
        net.write(0, key, &sdu(key as usize, 500));
    }
    net.run_until_quiet();
    net
}

#[test]
fn queued_pdus_move_when_an_n1_flow_ends() {
    let mut net = two_with_queues();
    net.cut((0, 0));
    let moved = net.members[0].counters().pdus_moved;
    assert!(
        (1..16).contains(&moved),
        "{moved} were on the N-1 flow that ended"
    );
    net.resume(0, 1);
    net.run_until_quiet();
    for key in 0..16 {
        assert_eq!(net.take_read(1, key), [sdu(key as usize, 500)]);
    }
    assert_eq!(net.members[0].counters().dropped_total(), 0);
}

#[test]
fn queued_pdus_leave_a_detaching_n1_flow_that_still_receives() {
    let mut net = two_with_queues();
    let now = net.now;
    net.members[0].set_detaching(N1Port(0), true);
    net.members[0].set_neighbour(now, Address(2), &[N1Port(1)]);
    net.members[0].move_waiting(now, N1Port(0));
    let moved = net.members[0].counters().pdus_moved;
    assert!((1..16).contains(&moved), "{moved} were on the N-1 flow");
    net.resume(0, 1);
    for key in 0..16 {
        net.write(1, key, &sdu(key as usize, 700));
    }
    net.run_until_quiet();
    for key in 0..16 {
        assert_eq!(net.take_read(1, key), [sdu(key as usize, 500)]);
        assert_eq!(net.take_read(0, key), [sdu(key as usize, 700)]);
    }
    assert_eq!(net.members[0].counters().dropped_total(), 0);
    net.members[0].set_detaching(N1Port(0), false);
    for key in 0..16 {
        net.write(1, key, b"too late");
    }
    net.run_until_quiet();
    let late = (0..16).filter(|key| net.take_read(0, *key).is_empty());
    let late = late.count() as u64;
    assert!((1..16).contains(&late), "{late} came through it");
    assert!(net.dropped(0, DropReason::NoNeighbour) >= late);
}

#[test]
fn without_another_way_queued_pdus_are_counted() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.stopped = vec![(0, 0)];
    net.flow(0, 1, 1, &cubes()[0]);
    net.write(0, 1, b"nowhere");
    net.run_until_quiet();
    net.cut((0, 0));
    assert_eq!(net.dropped(0, DropReason::N1Gone), 1);
    net.write(0, 1, b"either");
    net.run_until_quiet();
    assert_eq!(net.dropped(0, DropReason::UnknownDestination), 1);
}

#[test]
fn alternates_carry_on_before_new_tables_come() {
    let mut net = diamond(&config());
    net.route(0, &[(4, &[2], &[3])]);
    net.route(3, &[(1, &[3], &[])]);
    net.flow(0, 3, 1, &cubes()[2]);
    for number in 0..20 {
        net.write(0, 1, &sdu(number, 1000));
    }
    net.run_until_quiet();
    assert_eq!(net.members[1].counters().pdus_relayed, 20);
    let acks = net.members[2].counters().pdus_relayed;
    net.cut((0, 0));
    for number in 20..40 {
        net.write(0, 1, &sdu(number, 1000));
    }
    net.run_until(net.now + Duration::from_secs(5));
    let expected: Vec<_> = (0..40).map(|number| sdu(number, 1000)).collect();
    assert_eq!(net.take_read(3, 1), expected);
    assert!(net.members[2].counters().pdus_relayed >= acks + 20);
}

#[test]
fn the_shortest_queue_is_taken_when_pdus_may_spread() {
    let mut config = config();
    let spread = policy("ecmp", &[("multi-homing", "least-queue")]);
    config.policies.insert("forwarding".into(), spread);
    let mut net = Net::new(2, &config);
    net.wire((0, 0), (1, 0));
    net.wire((0, 1), (1, 1));
    net.flow(0, 1, 1, &cubes()[0]);
    for number in 0..10 {
        net.write(0, 1, &sdu(number, 1000));
    }
    let now = net.now;
    net.members[0].end_of_burst(now);
    let mut counts = [0, 0];
    while let Some(n1) = net.members[0].poll_n1() {
        assert!(net.members[0].take_transmit(now, n1).is_some());
        counts[n1.0 as usize] += 1;
    }
    assert_eq!(counts, [5, 5]);
}
