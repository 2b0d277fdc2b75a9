//! Tests of the connections without I/O.

use crate::header::{HOST_CID, Header, Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};
use crate::machine::{BUFFER_BYTES, CONNECTIONS_MAX, Key, Machine, Outcome};

const GUEST: u64 = 7;

fn packet(key: Key, op: Op, len: u32, flags: u32) -> Header {
    Header {
        source_cid: GUEST,
        destination_cid: HOST_CID,
        source_port: key.guest_port,
        destination_port: key.host_port,
        len,
        op,
        flags,
        buffer_bytes: 1000,
        forwarded: 0,
    }
}

fn key(guest_port: u32) -> Key {
    Key {
        host_port: 1110,
        guest_port,
    }
}

/// A machine with one connection that the guest has opened.
fn open() -> (Machine, Key) {
    let mut machine = Machine::new(GUEST);
    let key = key(5000);
    let outcome = machine.handle(&packet(key, Op::Request, 0, 0), 0);
    assert_eq!(outcome, Outcome::Incoming(key));
    machine.accept(key);
    assert_eq!(machine.poll_packet().unwrap().op, Op::Response);
    (machine, key)
}

#[test]
fn guest_spends_no_more_than_its_credit() {
    let (mut machine, key) = open();
    let data = |len: u32| packet(key, Op::Data, len, 0);
    let half = BUFFER_BYTES / 2;
    for _ in 0..2 {
        let taken = machine.handle(&data(half), half as usize);
        assert_eq!(taken, Outcome::Data(key));
    }
    machine.forwarded(key, half as usize);
    let update = machine.poll_packet().unwrap();
    assert_eq!((update.op, update.forwarded), (Op::CreditUpdate, half));
    assert_eq!(
        machine.handle(&data(half), half as usize),
        Outcome::Data(key)
    );
    assert_eq!(machine.handle(&data(1), 1), Outcome::Ended(key));
    assert_eq!(machine.poll_packet().unwrap().op, Op::Reset);
    assert_eq!((machine.violations(), machine.connections()), (1, 0));
}

#[test]
fn host_spends_no_more_than_the_guest_grants_and_asks_once() {
    let (mut machine, key) = open();
    assert_eq!(machine.credit(key), 1000);
    assert_eq!(machine.data_header(key, 1000).unwrap().len, 1000);
    assert_eq!((machine.credit(key), machine.credit(key)), (0, 0));
    assert_eq!(machine.poll_packet().unwrap().op, Op::CreditRequest);
    assert_eq!(machine.poll_packet(), None);
    let mut update = packet(key, Op::CreditUpdate, 0, 0);
    update.forwarded = 600;
    assert_eq!(machine.handle(&update, 0), Outcome::Changed(key));
    assert_eq!(machine.credit(key), 600);
    // A guest that claims to have read more than was sent gets nothing.
    update.forwarded = 5000;
    let _ = machine.handle(&update, 0);
    assert_eq!(machine.credit(key), 0);
}

#[test]
fn either_side_ends_a_connection() {
    let (mut machine, key) = open();
    let shutdown = |flags| packet(key, Op::Shutdown, 0, flags);
    let half = machine.handle(&shutdown(SHUTDOWN_SEND), 0);
    assert_eq!(half, Outcome::EndOfData(key));
    let whole = machine.handle(&shutdown(SHUTDOWN_RECEIVE), 0);
    assert_eq!(whole, Outcome::Finished(key));
    machine.reset(key);
    assert_eq!(machine.poll_packet().unwrap().op, Op::Reset);

    let (mut machine, key) = open();
    machine.end_data(key);
    machine.close(key);
    let flags: Vec<u32> = std::iter::from_fn(|| machine.poll_packet())
        .map(|packet| packet.flags)
        .collect();
    assert_eq!(flags, [SHUTDOWN_SEND, SHUTDOWN_SEND | SHUTDOWN_RECEIVE]);
    assert_eq!(machine.credit(key), 0);
    let reset = machine.handle(&packet(key, Op::Reset, 0, 0), 0);
    assert_eq!((reset, machine.connections()), (Outcome::Ended(key), 0));
}

#[test]
fn host_opens_a_connection_to_a_port_of_the_guest() {
    let mut machine = Machine::new(GUEST);
    let key = machine.connect(22).unwrap();
    let request = machine.poll_packet().unwrap();
    assert_eq!((request.op, request.destination_port), (Op::Request, 22));
    assert_eq!(machine.credit(key), 0);
    let response = machine.handle(&packet(key, Op::Response, 0, 0), 0);
    assert_eq!(response, Outcome::Connected(key));
    assert_eq!(machine.credit(key), 1000);
    let refused = machine.connect(23).unwrap();
    let reset = machine.handle(&packet(refused, Op::Reset, 0, 0), 0);
    assert_eq!(reset, Outcome::Ended(refused));
}

#[test]
fn unknown_packets_are_answered_once_and_resets_never() {
    let mut machine = Machine::new(GUEST);
    for op in [Op::Data, Op::Response, Op::Shutdown, Op::CreditRequest] {
        assert_eq!(machine.handle(&packet(key(1), op, 0, 0), 0), Outcome::Done);
        assert_eq!(machine.poll_packet().unwrap().op, Op::Reset);
    }
    let _ = machine.handle(&packet(key(1), Op::Reset, 0, 0), 0);
    let mut other = packet(key(1), Op::Request, 0, 0);
    other.source_cid = 8;
    assert_eq!(machine.handle(&other, 0), Outcome::Done);
    assert_eq!((machine.poll_packet(), machine.dropped()), (None, 1));
}

#[test]
fn connections_are_bounded() {
    let mut machine = Machine::new(GUEST);
    for port in 0..CONNECTIONS_MAX as u32 {
        let outcome = machine.handle(&packet(key(port), Op::Request, 0, 0), 0);
        assert_eq!(outcome, Outcome::Incoming(key(port)));
    }
    let more = machine.handle(&packet(key(1 << 20), Op::Request, 0, 0), 0);
    assert_eq!(more, Outcome::Done);
    assert_eq!(machine.poll_packet().unwrap().op, Op::Reset);
    assert!(machine.connect(22).is_err());
}

#[test]
fn random_packets_keep_the_bounds() {
    let mut random = carina_random::Random::new(5);
    let mut machine = Machine::new(GUEST);
    for _ in 0..100_000 {
        let mut below = |limit: u64| (random.next_u64() % limit) as u32;
        let key = key(below(4));
        let ops = [
            Op::Request,
            Op::Response,
            Op::Reset,
            Op::Shutdown,
            Op::Data,
            Op::CreditUpdate,
            Op::CreditRequest,
        ];
        let len = below(1 << 16);
        let header = Header {
            buffer_bytes: below(1 << 32),
            forwarded: below(1 << 32),
            ..packet(key, ops[below(7) as usize], len, below(4))
        };
        match machine.handle(&header, len as usize) {
            Outcome::Incoming(key) => machine.accept(key),
            Outcome::Data(key) => machine.forwarded(key, len as usize),
            Outcome::Finished(key) => machine.reset(key),
            _ => {}
        }
        let credit = machine.credit(key);
        assert!(credit <= header.buffer_bytes as usize || credit <= u32::MAX as usize);
        assert!(machine.packets() <= 4 && machine.connections() <= 4);
        while machine.poll_packet().is_some() {}
    }
}
