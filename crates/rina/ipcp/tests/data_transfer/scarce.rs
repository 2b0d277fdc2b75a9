//! Shortage of buffers.

use std::cell::Cell;

use carina_ipcp::api::{FlowKey, N1Port};
use carina_ipcp::config::QosCube;
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, TransferEvent};
use carina_ipcp::{Catalogue, DataPath, DropReason};
use carina_time::Instant;
use carina_wire::dif::{Address, CepId};
use carina_wire::{Bytes, Payload};

use crate::data_transfer::net::{config, cubes, props};

thread_local! {
    static IS_OUT: Cell<bool> = const { Cell::new(false) };
}

/// A payload that cannot be kept beyond the burst while memory is out.
struct Scarce(Bytes);

impl Payload for Scarce {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn copy_prefix(&self, to: &mut [u8]) -> usize {
        self.0.copy_prefix(to)
    }
    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
    fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
    fn prepend(&mut self, header: &[u8]) -> bool {
        self.0.prepend(header)
    }
    fn share(&mut self) -> Option<Scarce> {
        Some(Scarce(self.0.share()?))
    }
    fn keep(&mut self) -> bool {
        !IS_OUT.get()
    }
    fn append_to(&self, to: &mut Vec<u8>) {
        self.0.append_to(to);
    }
    fn from_vec(bytes: Vec<u8>) -> Option<Scarce> {
        Bytes::from_vec(bytes).map(Scarce)
    }
}

const FLOW: FlowKey = FlowKey(4);

/// Writes three SDUs, the second during a shortage. Returns the number of PDUs sent, the reasons
/// for which the flow failed, and the number of SDUs dropped for lack of a buffer.
fn write_through_a_shortage(cube: &QosCube) -> (usize, Vec<String>, u64) {
    let mut member = DataPath::<Scarce>::new(Catalogue::standard(), 7);
    member.configure(Instant::ZERO, &config()).expect("good");
    member.set_address(Address(1));
    member.add_n1(N1Port(0), &props());
    member.set_neighbour(Instant::ZERO, Address(2), &[N1Port(0)]);
    let open = Open {
        owner: Owner::Flow(FLOW),
        cube: cube.clone(),
        msg_boundaries: true,
        pinned: None,
    };
    let cep = member
        .open(Instant::from_millis(1), open)
        .expect("a connection");
    member.connect(Instant::from_millis(1), cep, Address(2), CepId(9));
    let (mut left, mut reasons) = (0, Vec::new());
    for is_out in [false, true, false] {
        IS_OUT.set(is_out);
        let sdu = Scarce(Bytes::from(vec![7; 1000]));
        member.on_sdu(Instant::from_millis(1), FLOW, sdu, false);
        IS_OUT.set(false);
        member.end_of_burst(Instant::from_millis(1));
        while let Some(n1) = member.poll_n1() {
            while member.take_transmit(Instant::from_millis(1), n1).is_some() {
                left += 1;
            }
        }
        member.release_burst();
        while let Some(event) = DataTransfer::poll(&mut member) {
            if let TransferEvent::Failed { owner, reason } = event {
                assert_eq!(owner, Owner::Flow(FLOW));
                reasons.push(reason);
            }
        }
    }
    let dropped = member.counters().dropped(DropReason::NoBuffer);
    (left, reasons, dropped)
}

#[test]
fn a_reliable_flow_fails_once_and_is_silent_after_a_lost_sdu() {
    for cube in cubes().iter().filter(|cube| cube.retransmission) {
        let (left, reasons, dropped) = write_through_a_shortage(cube);
        assert_eq!((left, dropped), (1, 1), "{}", cube.name);
        assert_eq!(reasons.len(), 1, "{}: {reasons:?}", cube.name);
        assert!(reasons[0].contains("no buffer"), "{}", reasons[0]);
    }
}

#[test]
fn an_unreliable_flow_goes_on() {
    let (left, reasons, _) = write_through_a_shortage(&cubes()[0]);
    assert!(left >= 2, "{left}");
    assert_eq!(reasons, Vec::<String>::new());
}
