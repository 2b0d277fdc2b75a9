#![allow(missing_docs, unused, dead_code)]
use carina_ipcp::seal::Toolbox;
use carina_ipcp::*;
use carina_wire::FlowSpec;
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    HeaderShort,
    HeaderVersion,
    HeaderType,
    HeaderReserved,
    HeaderLength,
    SealShort,
    SealChecksum,
    SealForged,
    SealReplayed,
    SealExpired,
    SealInflated,
    SealExhausted,
    Forged,
    HopLimit,
    UnknownDestination,
    NoNeighbour,
    UnknownCep,
    NotConnected,
    UnknownCube,
    UnknownN1,
    NotMember,
    TooLong,
    QueueFull,
    ManagementQueueFull,
    NoBuffer,
    N1Gone,
    NoRoom,
    NoFlow,
    SduTooLong,
    Field,
    Efcp,
    Delimiting,
}
#[derive(Default, Clone, PartialEq, Eq)]
pub struct Counters {
    pub pdus_received: u64,
    pub pdus_sent: u64,
    pub pdus_relayed: u64,
}
impl Counters {
    pub fn dropped(&self, _: DropReason) -> u64 {
        0
    }
    pub fn dropped_total(&self) -> u64 {
        0
    }
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        std::iter::empty()
    }
}

pub struct Ipcp<P>(std::marker::PhantomData<P>);
impl<P: carina_wire::Payload> Ipcp<P> {
    pub fn new(
        config: Config,
        toolbox: Box<dyn Toolbox>,
        catalogue: Catalogue,
        seed: u64,
    ) -> Result<Self, String> {
        Err("not there".into())
    }
    pub fn handle(&mut self, now: u64, c: Command) {}
    pub fn allocate(
        &mut self,
        now: u64,
        local: &str,
        remote: &str,
        spec: FlowSpec,
    ) -> Result<FlowKey, String> {
        Err("".into())
    }
    pub fn on_pdu(&mut self, now: u64, n1: N1Port, p: P) {}
    pub fn on_sdu(&mut self, now: u64, f: FlowKey, p: P, more: bool) {}
    pub fn room(&self, f: FlowKey) -> usize {
        0
    }
    pub fn poll_room(&mut self) -> Option<FlowKey> {
        None
    }
    pub fn set_delivery_room(&mut self, now: u64, f: FlowKey, bytes: usize) {}
    pub fn poll_deliver(&mut self) -> Option<Delivery<P>> {
        None
    }
    pub fn poll_n1(&mut self) -> Option<N1Port> {
        None
    }
    pub fn peek_transmit(&self, n1: N1Port) -> Option<usize> {
        None
    }
    pub fn take_transmit(&mut self, now: u64, n1: N1Port) -> Option<P> {
        None
    }
    pub fn block_n1(&mut self, n1: N1Port) {}
    pub fn unblock_n1(&mut self, n1: N1Port) {}
    pub fn end_of_burst(&mut self, now: u64) {}
    pub fn handle_timeout(&mut self, now: u64) {}
    pub fn poll_timeout(&self) -> Option<u64> {
        None
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    pub fn counters(&self) -> &Counters {
        unimplemented!()
    }
}
