//! The interface of an IPCP that a simulation uses. Tests of the simulator implement it by
//! something far simpler.

use carina_ipcp::{AllocateError, Command, Config, CreateError, Delivery, Event, FlowKey, N1Port};
use carina_wire::{Bytes, FlowSpec};

/// An IPCP on the virtual clock. Each method does what the method of the same name of
/// `carina_ipcp::Ipcp` does.
#[allow(missing_docs)]
pub trait Member {
    fn handle(&mut self, now: u64, command: Command);
    /// # Errors
    /// The IPCP cannot allocate the flow.
    fn allocate(
        &mut self,
        now: u64,
        local: &str,
        remote: &str,
        spec: FlowSpec,
    ) -> Result<FlowKey, AllocateError>;
    fn on_pdu(&mut self, now: u64, n1: N1Port, pdu: Bytes);
    fn on_sdu(&mut self, now: u64, flow: FlowKey, sdu: Bytes, more: bool);
    fn room(&mut self, flow: FlowKey) -> usize;
    fn poll_room(&mut self) -> Option<FlowKey>;
    fn set_delivery_room(&mut self, now: u64, flow: FlowKey, bytes: usize);
    fn poll_deliver(&mut self) -> Option<Delivery<Bytes>>;
    fn poll_n1(&mut self) -> Option<N1Port>;
    fn peek_transmit(&mut self, n1: N1Port) -> Option<usize>;
    fn take_transmit(&mut self, now: u64, n1: N1Port) -> Option<Bytes>;
    fn block_n1(&mut self, n1: N1Port);
    fn unblock_n1(&mut self, n1: N1Port);
    fn end_of_burst(&mut self, now: u64);
    fn handle_timeout(&mut self, now: u64);
    fn poll_timeout(&mut self) -> Option<u64>;
    fn poll_event(&mut self) -> Option<Event>;
}

/// Creates an IPCP from its configuration and a seed.
pub type MemberFactory = Box<dyn FnMut(Config, u64) -> Result<Box<dyn Member>, CreateError>>;
