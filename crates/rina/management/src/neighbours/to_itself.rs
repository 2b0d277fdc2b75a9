//! An N-1 flow from this IPCP to itself. An IPCP that looks for any member of its DIF calls the
//! DIF's name, and its own system may answer to that name.

use alloc::string::ToString;

use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::layer::TO_ITSELF;
use carina_time::Instant;

use super::super::Management;
use super::super::schema::Greeting;
use super::{Initiator, N1};

impl Management {
    /// True when an M_CONNECT comes from this IPCP itself, not from another one with its name.
    pub(super) fn is_own(&self, greeting: &Greeting) -> bool {
        greeting.name == self.own && greeting.incarnation == self.incarnation
    }

    /// Returns both ends of an N-1 flow to itself: this IPCP's M_CONNECT with this nonce arrived at
    /// `n1`. The end that requested the flow is requested again, as after a loss.
    pub(super) fn return_n1_to_itself(
        &mut self,
        now: Instant,
        n1: N1Port,
        nonce: u64,
        dt: &mut dyn DataTransfer,
    ) {
        self.log.count("n1-to-itself");
        let is_asking = |flow: &N1| flow.initiator.as_ref().map(Initiator::nonce) == Some(nonce);
        let asking = self.n1s.iter().find(|(_, flow)| is_asking(flow));
        let asking = asking.map(|(other, _)| *other);
        if let Some(asking) = asking {
            self.attempt_failed(now, asking, TO_ITSELF, true, dt);
        }
        for end in asking.into_iter().filter(|end| *end != n1).chain([n1]) {
            if let Some(flow) = self.n1s.get_mut(&end) {
                flow.retry_at = None;
            }
            let reason = TO_ITSELF.to_string();
            self.log.push(Event::DropN1 { n1: end, reason });
        }
    }
}
