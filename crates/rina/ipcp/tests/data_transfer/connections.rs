//! Flows that end, switch to a new connection, or start again under the same key; flows within one
//! member; DIFs over DIFs.

use carina_ipcp::api::{FlowKey, N1Port};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, TransferEvent};
use carina_ipcp::{DataPath, DropReason};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::Address;

use crate::data_transfer::net::{Net, config, cube, cubes, sdu};

#[test]
fn two_applications_of_one_member_need_no_n1_flow() {
    for cube in cubes() {
        let mut net = Net::new(1, &config());
        net.flow_between((0, 1), (0, 2), &cube);
        for number in 0..200 {
            net.write(0, 1, &sdu(number, number * 30));
            net.write(0, 2, &sdu(number + 1, number * 30));
        }
        net.run_until(net.now + Duration::from_secs(1));
        for (key, add) in [(2, 0), (1, 1)] {
            let expected: Vec<_> = (0..200)
                .map(|number| sdu(number + add, number * 30))
                .collect();
            assert!(net.take_read(0, key) == expected, "{}", cube.name);
        }
        let counters = net.members[0].counters();
        assert_eq!((counters.pdus_sent, counters.dropped_total()), (0, 0));
        assert!(counters.pdus_looped >= 400 / 30);
    }
}

#[test]
fn what_was_written_before_the_end_arrives_before_it() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    let (_, _) = net.flow(0, 1, 3, &cubes()[2]);
    net.loses = Some(Box::new(|_, _, number| number % 7 == 2));
    for number in 0..500 {
        net.write(0, 3, &sdu(number, 900));
    }
    let now = net.now;
    net.members[0].finish(now, FlowKey(3));
    net.run_until_quiet();
    assert!(net.events.is_empty());
    net.write(0, 3, b"too late");
    net.run_until(now + Duration::from_secs(4));
    let drained = TransferEvent::Drained { flow: FlowKey(3) };
    assert_eq!(net.events, [(0, drained)]);
    // The last SDUs are read after the other end has closed the connection.
    let now = net.now;
    net.members[1].close(now, Owner::Flow(FlowKey(3)));
    let expected: Vec<_> = (0..500).map(|number| sdu(number, 900)).collect();
    assert!(net.take_read(1, 3) == expected);
    assert_eq!(net.dropped(0, DropReason::NoFlow), 1);
}

#[test]
fn what_has_come_is_read_after_the_close() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 3, &cubes()[2]);
    let now = net.now;
    net.members[1].set_delivery_room(now, FlowKey(3), 2000);
    for number in 0..8 {
        net.write(0, 3, &sdu(number, 900));
    }
    net.run_until_quiet();
    let mut read = net.take_read(1, 3);
    assert_eq!(read.len(), 2);
    net.members[1].close(now, Owner::Flow(FlowKey(3)));
    assert!(!net.members[1].is_delivered(FlowKey(3)));
    while !net.members[1].is_delivered(FlowKey(3)) {
        net.members[1].set_delivery_room(now, FlowKey(3), 1000);
        net.run_until_quiet();
        read.extend(net.take_read(1, 3));
    }
    assert!(
        read.len() >= 4,
        "the window let more out than was read: {}",
        read.len()
    );
    let expected: Vec<_> = (0..read.len()).map(|number| sdu(number, 900)).collect();
    assert_eq!(read, expected);
}

#[test]
fn a_key_may_be_used_again_and_old_pdus_find_no_flow() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 3, &cubes()[2]);
    net.stopped = vec![(0, 0)];
    net.write(0, 3, b"of the old flow");
    net.run_until_quiet();
    let now = net.now;
    for member in &mut net.members {
        member.close(now, Owner::Flow(FlowKey(3)));
    }
    net.flow(0, 1, 3, &cubes()[2]);
    net.resume(0, 0);
    net.write(0, 3, b"of the new flow");
    net.run_until(now + Duration::from_secs(1));
    assert_eq!(net.take_read(1, 3), [b"of the new flow".to_vec()]);
    assert_eq!(net.dropped(1, DropReason::UnknownCep), 1);
}

#[test]
fn a_flow_moves_to_a_new_connection_and_loses_nothing() {
    for cube in [&cubes()[2], &cubes()[0]] {
        let mut net = Net::new(2, &config());
        net.wire((0, 0), (1, 0));
        net.flow(0, 1, 3, cube);
        let mut written = 0;
        let mut write = |net: &mut Net, count: usize| {
            for _ in 0..count {
                net.write(0, 3, &sdu(written, 800));
                net.write(1, 3, &sdu(written, 800));
                written += 1;
            }
        };
        write(&mut net, 30);
        let now = net.now;
        let ceps = [net.open(0, 3, cube), net.open(1, 3, cube)];
        net.members[0].connect(now, ceps[0], Address(2), ceps[1]);
        net.members[1].connect(now, ceps[1], Address(1), ceps[0]);
        net.members[0].switch_to(now, FlowKey(3), ceps[0]);
        write(&mut net, 30);
        net.run_until_quiet();
        net.members[1].switch_to(now, FlowKey(3), ceps[1]);
        write(&mut net, 30);
        net.run_until(now + Duration::from_secs(60));
        write(&mut net, 30);
        net.run_until(now + Duration::from_secs(61));
        let expected: Vec<_> = (0..120).map(|number| sdu(number, 800)).collect();
        for member in [0, 1] {
            assert!(net.take_read(member, 3) == expected, "{}", cube.name);
            let mut objects = Vec::new();
            net.members[member].show(&mut objects);
            let connections = objects
                .iter()
                .filter(|object| object.path.starts_with("/data-transfer/connections/"));
            assert_eq!(connections.count(), 1, "the old one has gone");
        }
    }
}

#[test]
fn sequence_numbers_of_two_bytes_ask_for_a_new_connection() {
    let mut config = config();
    config.widths.seq = 2;
    config.concatenation = false;
    let mut net = Net::new(2, &config);
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 1, &cubes()[0]);
    for number in 0..50_000 {
        net.write(0, 1, &[number as u8]);
        if number % 100 == 0 {
            net.run_until_quiet();
        }
    }
    net.run_until_quiet();
    let rollover = TransferEvent::Rollover {
        owner: Owner::Flow(FlowKey(1)),
    };
    assert_eq!(net.events, [(0, rollover)]);
    assert_eq!(net.take_read(1, 1).len(), 50_000);
}

#[test]
fn a_peer_that_says_nothing_fails_a_reliable_flow() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 3, &cubes()[2]);
    net.loses = Some(Box::new(|_, _, _| true));
    net.write(0, 3, b"anybody?");
    net.run_until(net.now + Duration::from_secs(120));
    let failed = net.events.iter().any(|(member, event)| {
        *member == 0
            && matches!(
                event,
                TransferEvent::Failed {
                    owner: Owner::Flow(FlowKey(3)),
                    ..
                }
            )
    });
    assert!(failed, "{:?}", net.events);
}

#[test]
fn too_long_sdus_are_refused_without_delimiting() {
    let mut config = config();
    let none = crate::data_transfer::net::policy("none", &[]);
    config.policies.insert("delimiting".into(), none);
    let mut net = Net::new(2, &config);
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 1, &cubes()[0]);
    net.write(0, 1, &sdu(1, 1481));
    for _ in 0..3 {
        net.write(0, 1, &sdu(2, 1482));
    }
    net.write(0, 1, &sdu(3, 1481));
    net.run_until_quiet();
    assert_eq!(net.take_read(1, 1), [sdu(1, 1481), sdu(3, 1481)]);
    assert_eq!(net.dropped(0, DropReason::SduTooLong), 3);
    assert_eq!(net.notices(0, "1481"), 1, "told once, with what would fit");
}

#[test]
fn ten_thousand_flows_at_once() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    let reliable = &cubes()[2];
    for key in 0..10_000 {
        net.flow(0, 1, key, reliable);
    }
    for key in 0..10_000 {
        net.write(0, key, &sdu(key as usize, 100));
        if key % 50 == 0 {
            net.run_until_quiet();
        }
    }
    net.run_until(net.now + Duration::from_millis(500));
    for key in 0..10_000 {
        assert_eq!(net.take_read(1, key), [sdu(key as usize, 100)]);
    }
    let now = net.now;
    for key in 0..10_000 {
        net.members[0].close(now, Owner::Flow(FlowKey(key)));
    }
    let open = Open {
        owner: Owner::Flow(FlowKey(10_001)),
        cube: reliable.clone(),
        msg_boundaries: true,
        pinned: None,
    };
    assert!(net.members[0].open(now, open).is_ok());
    assert_eq!(net.dropped(0, DropReason::NoFlow), 0);
}

/// Two members of an upper DIF whose N-1 flow is a flow of a lower DIF of two members.
struct Stack {
    lower: Net,
    upper: [DataPath<Bytes>; 2],
}

impl Stack {
    fn run_until_quiet(&mut self) -> Vec<Vec<u8>> {
        let mut read = Vec::new();
        let now = self.lower.now;
        let port = N1Port(0);
        let mut halves: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
        loop {
            let mut has_moved = false;
            for (index, member) in self.upper.iter_mut().enumerate() {
                member.end_of_burst(now);
                while member.poll_n1() == Some(port) {
                    let pdu = member.take_transmit(now, port).unwrap();
                    self.lower.members[index].on_sdu(now, FlowKey(0), pdu, false);
                    has_moved = true;
                }
                while let Some(delivery) = member.poll_deliver() {
                    halves[index].extend_from_slice(delivery.sdu.as_slice());
                    if !delivery.more {
                        read.push(std::mem::take(&mut halves[index]));
                    }
                }
                member.release_burst();
            }
            self.lower.run_until_quiet();
            for index in [0, 1] {
                for sdu in self.lower.take_read(index, 0) {
                    self.upper[index].on_pdu(now, port, Bytes::from(sdu));
                    has_moved = true;
                }
            }
            if !has_moved {
                return read;
            }
        }
    }
}

#[test]
fn a_dif_over_a_dif_with_pdus_of_any_size() {
    // The upper PDU is smaller than, as long as, and longer than a lower PDU.
    for upper_max in [400, 1500, 9000, 65_535] {
        for lower_cube in [cube(1, "unreliable"), cubes()[2].clone()] {
            let mut lower = Net::new(2, &config());
            lower.wire((0, 0), (1, 0));
            lower.flow(0, 1, 0, &lower_cube);
            let mut upper_config = config();
            upper_config.max_pdu = upper_max;
            let mut props = crate::data_transfer::net::props();
            props.sdu_max = upper_max as usize;
            let upper = [0usize, 1].map(|index| {
                let mut member = DataPath::new(carina_ipcp::Catalogue::standard(), 40);
                member.configure(Instant::ZERO, &upper_config).unwrap();
                member.set_address(Address(index as u64 + 1));
                member.add_n1(N1Port(0), &props);
                member.set_neighbour(Instant::ZERO, Address(2 - index as u64), &[N1Port(0)]);
                member
            });
            let mut stack = Stack { lower, upper };
            let now = stack.lower.now;
            let open = Open {
                owner: Owner::Flow(FlowKey(8)),
                cube: cubes()[2].clone(),
                msg_boundaries: true,
                pinned: None,
            };
            let ceps = [0, 1].map(|index| stack.upper[index].open(now, open.clone()).unwrap());
            stack.upper[0].connect(now, ceps[0], Address(2), ceps[1]);
            stack.upper[1].connect(now, ceps[1], Address(1), ceps[0]);
            let sent: Vec<_> = (0..60).map(|number| sdu(number, number * 311)).collect();
            let mut read = Vec::new();
            for sdu in &sent {
                stack.upper[0].on_sdu(now, FlowKey(8), Bytes::from(sdu.clone()), false);
                read.extend(stack.run_until_quiet());
            }
            assert!(read == sent, "{upper_max} over {}", lower_cube.name);
        }
    }
}
