//! An N-1 flow from this IPCP to itself. An IPCP that asks for any member of its DIF asks for the
//! DIF's name, and its own system may be the one that answers to it.

use alloc::string::ToString;

use carina_cdap::Message;
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::layer::TO_ITSELF;
use carina_time::Instant;

use super::Irati;
use super::n1::Stage;

impl Irati {
    /// Returns both ends of an N-1 flow to this IPCP itself, if an M_CONNECT with its name that
    /// came over `n1` shows that it is one: this IPCP has sent one for the same name over another
    /// end in the same N-1 DIF.
    pub(super) fn return_n1_to_itself(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(came) = self.n1s.get(&n1) else {
            return false;
        };
        let dif = &came.props.dif;
        let mut asking = self.n1s.iter().filter(|(other, flow)| {
            let called = self.called_name(&flow.props);
            let is_asking = **other != n1 && matches!(flow.stage, Stage::Connecting { .. });
            is_asking && flow.props.dif == *dif && called == message.dst.ap
        });
        let Some(asking) = asking.next().map(|(other, _)| *other) else {
            return false;
        };
        self.log.count("n1-to-itself");
        if !self.is_member {
            let reason = TO_ITSELF.to_string();
            let n1 = asking;
            self.log.push(Event::EnrollFailed { n1, reason });
        }
        for end in [asking, n1] {
            self.disconnect(now, end, TO_ITSELF, false, dt);
            if let Some(flow) = self.n1s.get_mut(&end) {
                flow.cancel_retry();
            }
            let reason = TO_ITSELF.to_string();
            self.log.push(Event::DropN1 { n1: end, reason });
        }
        self.initiate_deferred(now);
        true
    }
}
