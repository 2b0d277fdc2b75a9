//! Queues of N-1 flows: scheduling, drops and marks, and writers that wait.

use carina_ipcp::api::{FlowKey, N1Port};
use carina_ipcp::config::{QosCube, RateConfig, WindowConfig};
use carina_ipcp::data_transfer::api::{DataTransfer, Target, TransferEvent};
use carina_ipcp::{DifConfig, DropReason};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::{Address, PduType, Syntax};

use crate::data_transfer::net::{MS, Net, config, cubes, policy, sdu};

/// Three members in a line. The relay's N-1 flow to the third is stopped.
fn stopped_line(config: &DifConfig) -> Net {
    let mut net = Net::new(3, config);
    net.wire((0, 0), (1, 0));
    net.wire((1, 1), (2, 0));
    net.route(0, &[(3, &[2], &[])]);
    net.route(1, &[(1, &[1], &[]), (3, &[3], &[])]);
    net.route(2, &[(1, &[2], &[])]);
    net.stopped = vec![(1, 1)];
    net
}

fn with(component: &str, name: &str, params: &[(&str, &str)]) -> DifConfig {
    let mut config = config();
    config.concatenation = false;
    config
        .policies
        .insert(component.into(), policy(name, params));
    config
}

/// The QoS-ids and lengths of the PDUs that a member sends, in order.
fn drain(net: &mut Net, member: usize, port: u32) -> Vec<(u16, usize)> {
    let now = net.now;
    let n1 = N1Port(port);
    net.members[member].unblock_n1(n1);
    let mut order = Vec::new();
    while net.members[member].poll_n1() == Some(n1) {
        let pdu = net.members[member].take_transmit(now, n1).unwrap();
        let route = Syntax::default().peek(pdu.as_slice()).unwrap();
        let qos = if route.kind == PduType::Management {
            0
        } else {
            route.qos.0
        };
        order.push((qos, pdu.as_slice().len()));
    }
    order
}

/// Writes to flows of cubes 1, 2 and 5, in turn, through the relay.
fn fill(net: &mut Net, rounds: usize) {
    for (key, cube) in [(1, 0), (2, 1), (5, 4)] {
        net.flow(0, 2, key, &cubes()[cube]);
    }
    for round in 0..rounds {
        for key in [1, 2, 5] {
            net.write(0, key, &sdu(round, 1000));
        }
    }
    net.run_until_quiet();
}

#[test]
fn fifo_keeps_the_order_of_arrival() {
    let mut net = stopped_line(&with("rmt-scheduling", "fifo", &[]));
    fill(&mut net, 4);
    let order: Vec<_> = drain(&mut net, 1, 1)
        .into_iter()
        .map(|(qos, _)| qos)
        .collect();
    assert_eq!(order, [1, 2, 5, 1, 2, 5, 1, 2, 5, 1, 2, 5]);
}

#[test]
fn strict_priority_sends_management_then_urgent_pdus_first() {
    let mut net = stopped_line(&with("rmt-scheduling", "strict-priority", &[]));
    fill(&mut net, 4);
    let now = net.now;
    net.members[1].send_management(now, Target::Address(Address(3)), b"first");
    let order: Vec<_> = drain(&mut net, 1, 1)
        .into_iter()
        .map(|(qos, _)| qos)
        .collect();
    assert_eq!(order, [0, 5, 5, 5, 5, 1, 2, 1, 2, 1, 2, 1, 2]);
}

#[test]
fn weighted_fair_shares_bytes_by_weight() {
    let mut net = stopped_line(&with(
        "rmt-scheduling",
        "weighted-fair",
        &[("quantum", "1020")],
    ));
    fill(&mut net, 60);
    let order = drain(&mut net, 1, 1);
    assert_eq!(order.len(), 180);
    // Cube 2 has weight 3, the others 1: until it is empty it gets three of five.
    let head: Vec<_> = order.iter().take(100).collect();
    let count = |id| head.iter().filter(|(qos, _)| *qos == id).count();
    assert_eq!((count(1), count(2), count(5)), (20, 60, 20));
}

#[test]
fn tail_drop_drops_what_finds_a_full_queue() {
    let config = with("rmt-queue", "tail-drop", &[("limit-pdus", "10")]);
    let mut net = stopped_line(&config);
    net.flow(0, 2, 1, &cubes()[0]);
    for number in 0..25 {
        net.write(0, 1, &sdu(number, 100));
    }
    net.run_until_quiet();
    assert_eq!(net.dropped(1, DropReason::QueueFull), 15);
    net.resume(1, 1);
    net.run_until_quiet();
    let expected: Vec<_> = (0..10).map(|number| sdu(number, 100)).collect();
    assert_eq!(net.take_read(2, 1), expected);
}

#[test]
fn marks_come_where_the_cube_allows_them() {
    let params = [("mark-pdus", "10"), ("limit-pdus", "20")];
    let config = with("rmt-queue", "ecn-mark", &params);
    let mut net = stopped_line(&config);
    net.flow(0, 2, 1, &cubes()[0]);
    net.flow(0, 2, 3, &cubes()[2]);
    for number in 0..15 {
        net.write(0, 1, &sdu(number, 100));
        net.write(0, 3, &sdu(number, 100));
    }
    net.run_until_quiet();
    // Congestion control allows ten reliable PDUs at first.
    assert_eq!(net.members[1].counters().pdus_marked, 0);
    net.resume(1, 1);
    net.run_until_quiet();
    net.stopped = vec![(1, 1)];
    for number in 15..30 {
        net.write(0, 3, &sdu(number, 100));
    }
    net.run_until_quiet();
    let marked = net.members[1].counters().pdus_marked;
    assert!(marked > 0, "{marked}");
    net.resume(1, 1);
    net.run_until(net.now + Duration::from_secs(1));
    assert_eq!(net.take_read(2, 3).len(), 30);
    assert_eq!(net.members[1].counters().dropped_total(), 0);
}

#[test]
fn red_drops_more_the_longer_the_queue_is() {
    let params = [
        ("least", "5"),
        ("most", "50"),
        ("share", "5000"),
        ("shift", "0"),
    ];
    let mut net = stopped_line(&with("rmt-queue", "red", &params));
    net.flow(0, 2, 1, &cubes()[0]);
    for number in 0..100 {
        net.write(0, 1, &sdu(number, 100));
    }
    net.run_until_quiet();
    let dropped = net.dropped(1, DropReason::QueueFull);
    // No drops among the first 5, all dropped from 50 on, and a growing share in between.
    assert!((40..95).contains(&dropped), "{dropped}");
}

#[test]
fn own_flows_wait_and_lose_nothing() {
    let params = [("own-pdus", "8"), ("own-bytes", "20000")];
    let mut net = Net::new(2, &with("rmt-queue", "tail-drop", &params));
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 1, &cubes()[0]);
    net.stopped = vec![(0, 0)];
    assert_eq!(net.members[0].room(FlowKey(1)), 20_000);
    for number in 0..50 {
        net.write(0, 1, &sdu(number, 1000));
    }
    net.run_until_quiet();
    assert_eq!(net.members[0].room(FlowKey(1)), 0);
    assert_eq!(net.members[0].poll_room(), None);
    net.resume(0, 0);
    net.run_until_quiet();
    let expected: Vec<_> = (0..50).map(|number| sdu(number, 1000)).collect();
    assert_eq!(net.take_read(1, 1), expected);
    assert_eq!(net.members[0].poll_room(), Some(FlowKey(1)));
    assert_eq!(net.members[0].room(FlowKey(1)), 20_000);
    assert_eq!(net.members[0].counters().dropped_total(), 0);
}

#[test]
fn flows_that_wait_take_turns() {
    let params = [("own-pdus", "4"), ("own-bytes", "20000")];
    let mut net = Net::new(2, &with("rmt-queue", "tail-drop", &params));
    net.wire((0, 0), (1, 0));
    for key in 0..3 {
        net.flow(0, 1, key, &cubes()[0]);
    }
    net.stopped = vec![(0, 0)];
    for key in 0..3 {
        for number in 0..30 {
            net.write(0, key, &sdu(number, 1000));
        }
    }
    net.run_until_quiet();
    net.resume(0, 0);
    net.run_until_quiet();
    for key in 0..3 {
        let expected: Vec<_> = (0..30).map(|number| sdu(number, 1000)).collect();
        assert_eq!(net.take_read(1, key), expected);
    }
}

#[test]
fn a_full_window_holds_the_writer_back() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 2, &cubes()[1]);
    let now = net.now;
    net.members[1].set_delivery_room(now, FlowKey(2), 10_000);
    for number in 0..1000 {
        net.write(0, 2, &sdu(number, 1400));
    }
    net.run_until_quiet();
    let read = net.take_read(1, 2);
    assert_eq!(read.len(), 7, "what 10,000 bytes of room hold");
    assert_eq!(net.members[0].room(FlowKey(2)), 0);
    let mut all = read;
    for _ in 0..100_000 {
        if all.len() == 1000 {
            break;
        }
        let now = net.now;
        net.members[1].set_delivery_room(now, FlowKey(2), 14_000);
        net.run_until_quiet();
        all.extend(net.take_read(1, 2));
    }
    let expected: Vec<_> = (0..1000).map(|number| sdu(number, 1400)).collect();
    assert_eq!(all, expected);
    assert_eq!(net.members[0].poll_room(), Some(FlowKey(2)));
    assert!(net.members[0].room(FlowKey(2)) > 0);
    for member in &net.members {
        assert_eq!(member.counters().dropped_total(), 0);
    }
}

#[test]
fn a_rate_holds_the_writer_back_and_lets_it_go_on() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    let rate = RateConfig {
        pdus: 10,
        frame_ms: 10,
    };
    // The other side sends nothing, so only time lets the writer continue.
    let paced = QosCube {
        rate: Some(rate),
        ..cubes().remove(0)
    };
    net.flow(0, 1, 1, &paced);
    let mut written = 0;
    let mut may_write = true;
    while net.now < Instant::from_secs(2) {
        while may_write && written < 1000 {
            may_write = net.members[0].room(FlowKey(1)) > 0;
            net.write(0, 1, &sdu(written, 1400));
            written += 1;
        }
        net.run_until(net.now + MS);
        may_write |= net.members[0].poll_room().is_some();
    }
    let expected: Vec<_> = (0..1000).map(|number| sdu(number, 1400)).collect();
    let read = net.take_read(1, 1);
    assert_eq!(read.len(), 1000);
    assert!(read == expected, "every SDU, in order");
    assert_eq!(net.members[0].counters().dropped_total(), 0);
}

#[test]
fn without_flow_control_a_reader_without_room_loses_whole_sdus() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 1, &cubes()[0]);
    let now = net.now;
    net.members[1].set_delivery_room(now, FlowKey(1), 2500);
    for number in 0..5 {
        net.write(0, 1, &sdu(number, 1000));
    }
    net.run_until_quiet();
    let expected: Vec<_> = (0..2).map(|number| sdu(number, 1000)).collect();
    assert_eq!(net.take_read(1, 1), expected);
    assert_eq!(net.dropped(1, DropReason::NoRoom), 3);
}

#[test]
fn an_n1_flow_that_takes_nothing_is_reported() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 1, &cubes()[0]);
    net.stopped = vec![(0, 0)];
    net.write(0, 1, b"waits");
    net.run_until(net.now + Duration::from_secs(14));
    assert!(net.events.is_empty(), "{:?}", net.events);
    net.run_until(net.now + Duration::from_secs(2));
    let stuck = (0, TransferEvent::Stuck { n1: N1Port(0) });
    assert_eq!(net.events, [stuck]);
    net.resume(0, 0);
    net.run_until(net.now + Duration::from_secs(60));
    assert_eq!(net.events.len(), 1);
}

#[test]
fn queueing_and_scheduling_change_while_pdus_wait() {
    let mut net = stopped_line(&with("rmt-scheduling", "fifo", &[]));
    fill(&mut net, 3);
    let now = net.now;
    let relay = &mut net.members[1];
    relay
        .set_policy(now, "rmt-scheduling", &policy("strict-priority", &[]))
        .unwrap();
    relay
        .set_policy(
            now,
            "rmt-queue",
            &policy("tail-drop", &[("limit-pdus", "2")]),
        )
        .unwrap();
    let error = relay
        .set_policy(
            now,
            "rmt-queue",
            &policy("tail-drop", &[("limit-pdus", "none")]),
        )
        .unwrap_err();
    assert!(error.to_string().contains("limit-pdus"), "{error}");
    let error = relay
        .set_policy(now, "delimiting", &policy("none", &[]))
        .unwrap_err();
    let error = error.to_string();
    assert!(error.contains("while the DIF runs"), "{error}");
    net.write(0, 5, b"too many");
    net.run_until_quiet();
    assert_eq!(net.dropped(1, DropReason::QueueFull), 1);
    let order: Vec<_> = drain(&mut net, 1, 1)
        .into_iter()
        .map(|(qos, _)| qos)
        .collect();
    assert_eq!(order, [5, 5, 5, 1, 2, 1, 2, 1, 2]);
}

#[test]
fn payloads_longer_than_the_n1_flow_carries_are_counted() {
    let mut net = Net::new(2, &config());
    let mut small = crate::data_transfer::net::props();
    small.sdu_max = 1000;
    net.wire_with((0, 0), (1, 0), &small);
    assert!(net.members[0].carries(N1Port(0)).is_err());
    net.flow(0, 1, 1, &cubes()[0]);
    let now = net.now;
    net.members[0].on_sdu(now, FlowKey(1), Bytes::from(vec![0; 1400]), false);
    net.run_until_quiet();
    assert_eq!(net.dropped(0, DropReason::TooLong), 1);
    let notices = net.events.iter().filter(
        |(_, event)| matches!(event, TransferEvent::Notice { text } if text.contains("1000")),
    );
    assert_eq!(notices.count(), 2);
}

#[test]
fn a_writer_is_notified_of_room_after_the_queue_was_filled() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 2, &cubes()[1]);
    let (flow, now) = (FlowKey(2), net.now);
    net.members[1].set_delivery_room(now, flow, 0);
    // The window closes, and the queue behind it fills.
    let mut written = 0;
    while net.members[0].room(flow) > 0 {
        net.write(0, 2, &sdu(written, 1400));
        net.run_until_quiet();
        written += 1;
    }
    while net.members[0].poll_room().is_some() {}
    // The window opens while the N-1 flow takes no PDUs.
    net.stopped = vec![(0, 0)];
    net.members[1].set_delivery_room(now, flow, 1 << 24);
    net.run_until_quiet();
    let early = net.members[0].poll_room();
    net.resume(0, 0);
    net.run_until_quiet();
    let told = early.or_else(|| net.members[0].poll_room());
    assert_eq!(told, Some(flow));
    assert!(net.members[0].room(flow) > 0);
    assert_eq!(net.take_read(1, 2).len(), written);
}

/// Two members whose PDUs are as long as over shared memory, with a flow of the reliable cube. The
/// flow's reader has room for 1 MiB.
fn long_pdus() -> Net {
    let long = DifConfig {
        max_pdu: 0,
        concatenation: false,
        ..config()
    };
    let mut net = Net::new(2, &long);
    let mut props = crate::data_transfer::net::props();
    props.sdu_max = usize::from(u16::MAX);
    net.wire_with((0, 0), (1, 0), &props);
    let cube = QosCube {
        window: Some(WindowConfig::default()),
        ..cubes()[2].clone()
    };
    net.flow(0, 1, 3, &cube);
    let now = net.now;
    net.members[1].set_delivery_room(now, FlowKey(3), ROOM);
    net
}

/// Writes SDUs of 60 kB until there is no room. Returns their number.
fn write_until_full(net: &mut Net) -> usize {
    let mut written = 0;
    while net.members[0].room(FlowKey(3)) > 0 {
        net.write(0, 3, &sdu(written, LONG));
        net.run_until(net.now + MS);
        written += 1;
    }
    written
}

/// Reads SDUs, after those in `read`, until all that were written have arrived.
fn read_on(net: &mut Net, written: usize, mut read: Vec<Vec<u8>>) {
    while read.len() < written {
        let now = net.now;
        net.members[1].set_delivery_room(now, FlowKey(3), ROOM);
        net.run_until(now + MS);
        let more = net.take_read(1, 3);
        assert!(!more.is_empty(), "it stops after {}", read.len());
        read.extend(more);
    }
    let expected: Vec<_> = (0..written).map(|number| sdu(number, LONG)).collect();
    assert!(read == expected);
    assert_eq!(net.members[1].counters().dropped_total(), 0);
}

#[test]
fn a_stopped_reader_blocks_the_writer_of_long_sdus() {
    let mut net = long_pdus();
    let written = write_until_full(&mut net);
    let read = net.take_read(1, 3);
    assert_eq!(read.len(), ROOM / LONG);
    // The initial credit of 64 PDUs, what the reader has taken, and 1 MiB before the window.
    let bytes_max = 64 * LONG + 2 * ROOM + LONG;
    assert!(written * LONG <= bytes_max, "{written} SDUs are taken");
    read_on(&mut net, written, read);
}

#[test]
fn short_sdus_let_no_more_long_ones_in_than_a_window_may_hold() {
    let mut net = long_pdus();
    for number in 0..2000 {
        net.write(0, 3, &sdu(number, 10));
        net.run_until_quiet();
        let now = net.now;
        net.members[1].set_delivery_room(now, FlowKey(3), ROOM);
    }
    net.run_until(net.now + Duration::from_secs(1));
    assert_eq!(net.take_read(1, 3).len(), 2000);
    let written = write_until_full(&mut net);
    let read = net.take_read(1, 3);
    let bytes_max = (16 << 20) + 2 * ROOM + LONG;
    assert!(written * LONG <= bytes_max, "{written} SDUs are taken");
    read_on(&mut net, written, read);
}

const LONG: usize = 60_000;
const ROOM: usize = 1 << 20;
