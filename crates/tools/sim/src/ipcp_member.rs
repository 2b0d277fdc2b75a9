//! The real IPCP as a member of a simulation.

use carina_dialects::DIALECTS;
use carina_ipcp::{
    AllocateError, Catalogue, Command, Config, Delivery, Event, FlowKey, Ipcp, N1Port,
};
use carina_protect::{Credentials, Secret, Tools};
use carina_time::Instant;
use carina_wire::{Bytes, FlowSpec};

use crate::member::{Member, MemberFactory};
use carina_random::mix;

/// Returns a factory of real IPCPs, with the protection and authentication of `carina-protect`. All
/// of them know the same password, and their keys come from the seed.
#[must_use]
pub fn member_factory() -> MemberFactory {
    Box::new(|config: Config, seed: u64| {
        let credentials = Credentials {
            password: Some(Secret::new("of the simulation")),
            ..Credentials::default()
        };
        let toolbox = Tools::seeded(credentials, mix(seed, 0x7001));
        let member = Ipcp::<Bytes>::new(
            DIALECTS,
            config,
            Box::new(toolbox),
            Catalogue::standard(),
            seed,
        )?;
        Ok(Box::new(member) as Box<dyn Member>)
    })
}

impl Member for Ipcp<Bytes> {
    fn handle(&mut self, now: u64, command: Command) {
        Ipcp::handle(self, Instant::from_nanos(now), command);
    }

    fn allocate(
        &mut self,
        now: u64,
        local: &str,
        remote: &str,
        spec: FlowSpec,
    ) -> Result<FlowKey, AllocateError> {
        Ipcp::allocate(self, Instant::from_nanos(now), local, remote, spec)
    }

    fn on_pdu(&mut self, now: u64, n1: N1Port, pdu: Bytes) {
        Ipcp::on_pdu(self, Instant::from_nanos(now), n1, pdu);
    }

    fn on_sdu(&mut self, now: u64, flow: FlowKey, sdu: Bytes, more: bool) {
        Ipcp::on_sdu(self, Instant::from_nanos(now), flow, sdu, more);
    }

    fn room(&mut self, flow: FlowKey) -> usize {
        Ipcp::room(self, flow)
    }

    fn poll_room(&mut self) -> Option<FlowKey> {
        Ipcp::poll_room(self)
    }

    fn set_delivery_room(&mut self, now: u64, flow: FlowKey, bytes: usize) {
        Ipcp::set_delivery_room(self, Instant::from_nanos(now), flow, bytes);
    }

    fn poll_deliver(&mut self) -> Option<Delivery<Bytes>> {
        Ipcp::poll_deliver(self)
    }

    fn poll_n1(&mut self) -> Option<N1Port> {
        Ipcp::poll_n1(self)
    }

    fn peek_transmit(&mut self, n1: N1Port) -> Option<usize> {
        Ipcp::peek_transmit(self, n1)
    }

    fn take_transmit(&mut self, now: u64, n1: N1Port) -> Option<Bytes> {
        Ipcp::take_transmit(self, Instant::from_nanos(now), n1)
    }

    fn block_n1(&mut self, n1: N1Port) {
        Ipcp::block_n1(self, n1);
    }

    fn unblock_n1(&mut self, n1: N1Port) {
        Ipcp::unblock_n1(self, n1);
    }

    fn end_of_burst(&mut self, now: u64) {
        Ipcp::end_of_burst(self, Instant::from_nanos(now));
    }

    fn handle_timeout(&mut self, now: u64) {
        Ipcp::handle_timeout(self, Instant::from_nanos(now));
    }

    fn poll_timeout(&mut self) -> Option<u64> {
        Ipcp::poll_timeout(self).map(Instant::as_nanos)
    }

    fn poll_event(&mut self) -> Option<Event> {
        Ipcp::poll_event(self)
    }
}
