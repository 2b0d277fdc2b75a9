//! An N-1 flow from this IPCP to itself. An IPCP that asks for any member of its DIF asks for the
//! DIF's name, and its own system may be the one that answers to it.

use alloc::string::ToString;

use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::layer::TO_ITSELF;
use carina_time::Instant;

use super::super::Management;
use super::super::schema::Greeting;
use super::{Initiator, N1};

impl Management {
    /// Whether an M_CONNECT is of this IPCP itself, and not of another with its name.
    pub(super) fn is_own(&self, greeting: &Greeting) -> bool {
        greeting.name == self.own && greeting.incarnation == self.incarnation
    }

    /// Returns both ends of the N-1 flow over which this IPCP's M_CONNECT with this nonce has come
    /// back, at `n1`. The end that asked is asked for again, as after any loss.
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
